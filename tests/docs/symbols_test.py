"""What `make docs` counts as a documented public symbol, on XML as Doxygen writes it."""
import pathlib
import sys
import unittest
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs" / "site"))
import symbols  # noqa: E402


def member(kind, name, text="", arguments="", inside="", prot="public"):
    return f"""<memberdef kind="{kind}" prot="{prot}"><type>int</type><argsstring>{arguments}</argsstring><name>{name}</name>{inside}
        <briefdescription>{f'<para>{text}</para>' if text else ''}</briefdescription><detaileddescription/>
        <location file="lockstep/a.h" line="7"/></memberdef>"""


def compounds(*members, name="lockstep::Options", kind="struct", text="What it is."):
    return {"a": ElementTree.fromstring(f"""<compounddef id="a" kind="{kind}" prot="public"><compoundname>{name}</compoundname>
        <sectiondef>{''.join(members)}</sectiondef><briefdescription>{f'<para>{text}</para>' if text else ''}</briefdescription>
        <detaileddescription/><location file="lockstep/a.h" line="3"/></compounddef>""")}


def missing(read, sources=()):
    symbols.complete(read, sources)
    return [name for *_, name, documented in symbols.symbols(read) if not documented]


class Comments(unittest.TestCase):
    def test_a_symbol_without_comment_is_named(self):
        read = compounds(member("function", "run", arguments="(int n)"), member("variable", "lr", "Learning rate."), text="")
        self.assertEqual(missing(read), ["lockstep::Options", "lockstep::Options::run"])

    def test_an_enumerator_without_comment_is_named(self):
        value = "<enumvalue><name>kFast</name><briefdescription/><detaileddescription/></enumvalue>"
        read = compounds(member("enum", "Reduction", "Order of sums.", inside=value), name="lockstep", kind="namespace")
        self.assertEqual(missing(read), ["lockstep::Reduction::kFast"])

    def test_what_is_not_public_needs_none(self):
        self.assertEqual(missing(compounds(member("variable", "x", prot="private"))), [])
        self.assertEqual(missing(compounds(member("function", "f"), name="torch", kind="namespace")), [])

    def test_what_the_language_makes_needs_none(self):
        read = compounds(member("function", "~Options", arguments="()"), member("function", "Options", arguments="(const Options &amp;)=delete"))
        self.assertEqual(missing(read), [])

    def test_help_of_an_option_is_a_comment(self):
        source = 'void describe(OptionVisitor& v, Options& o) {\n  v.field("lr", o.lr, "Learning " "rate", at_least(0));\n}\n'
        read = compounds(member("variable", "lr"), member("variable", "other"))
        self.assertEqual(missing(read, [source]), ["lockstep::Options::other"])
        text = "".join(read["a"].find("sectiondef/memberdef/briefdescription").itertext())
        self.assertEqual(text, "Learning rate.")

    def test_help_of_shared_options_is_found(self):
        sources = ['template <class T> void describe_all(OptionVisitor& v, T& o) {\n  v.field("lr", o.lr, "Learning rate");\n}\n'
                   "void describe(OptionVisitor& v, Options& o) { describe_all(v, o); }\n"]
        self.assertEqual(missing(compounds(member("variable", "lr")), sources), [])

    def test_spelling_of_a_value_is_a_comment(self):
        source = ('std::span<const OptionName<Reduction>> option_names(Reduction) {\n'
                  '  static constexpr OptionName<Reduction> kNames[] = {{"fast", Reduction::kFast}};\n  return kNames;\n}\n')
        value = "<enumvalue><name>kFast</name><briefdescription/><detaileddescription/></enumvalue>"
        read = compounds(member("enum", "Reduction", "Order of sums.", inside=value), name="lockstep", kind="namespace")
        self.assertEqual(missing(read, [source]), [])


if __name__ == "__main__":
    unittest.main()
