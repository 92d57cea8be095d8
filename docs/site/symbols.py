"""The public symbols as Doxygen wrote them down (XML), completed by what the sources say of options, and made fit for Breathe."""
import copy
import pathlib
import re
import xml.etree.ElementTree as ElementTree

COMPOUNDS = ("class", "struct", "union", "namespace", "concept")
LITERALS = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
DESCRIBE = re.compile(r"\b(\w+)\(OptionVisitor& *(\w*), (?:const )?([\w:<>]+)& *(\w*)[^(){}]*\) *\{")
NAMES = re.compile(r"option_names\(([\w:]+)\) *\{(.*?)\n\s*\}\n", re.S)
OPTION_TYPE = {"parse": "Reads a value from a flag, a file or the environment.", "print": "The text that `parse` reads.",
               "accepted": "What `parse` accepts, for errors.", "type": "What a value is, for help."}
DESCRIPTIONS = ("briefdescription", "detaileddescription", "inbodydescription")


def element(tag, *children, text=None, **attributes):
    made = ElementTree.Element(tag, attributes)
    made.text = text
    made.extend(children)
    return made


def has_text(node):
    """Whether a comment says something of the symbol `node`."""
    return any(part is not None and "".join(part.itertext()).strip() for part in map(node.find, DESCRIPTIONS))


def set_text(node, text):
    node.find("briefdescription").append(element("para", text=text))


def is_within(scope):
    return (scope + "::").startswith("lockstep::")


def read(folder):
    """The compounds of `folder`, by their id."""
    files = (file for file in sorted(pathlib.Path(folder).glob("*.xml")) if file.name != "index.xml")
    compounds = (c for file in files for c in ElementTree.parse(file).getroot().iterfind("compounddef"))
    return {c.get("id"): c for c in compounds}


def members(compound):
    return compound.iterfind("sectiondef/memberdef")


def location(node):
    """File below include/ and line."""
    place = node.find("location")
    return (place.get("file"), int(place.get("line", 0))) if place is not None else ("", 0)


# What sources say of options.

def body_after(text, begin):
    depth, end = 1, begin
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[begin:end]


def literal(text):
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)).replace('\\"', '"').replace("\\n", " ").replace("\\\\", "\\")


def helps_of_options(texts):
    """The help of each option, by (struct, member), from the functions `describe` and those that these call."""
    functions, fields, calls = {}, {}, {}
    for text in texts:
        for match in DESCRIBE.finditer(text):
            function, visitor, struct, options = match.groups()
            key = (function, struct.split("::")[-1])
            functions.setdefault(function, []).append(key)
            body = body_after(text, match.end())
            option = re.compile(rf'{visitor}\.\w+\(\s*"[^"]+",\s*{options}\.(\w+),\s*(?:[\w:&]+(?:\([^()"]*\))?,\s*)?{LITERALS}')
            fields[key] = {member: literal(said) for member, said in option.findall(body)}
            calls[key] = re.findall(rf"(\w+)\({visitor}, {options}\b", body)
    found = {}

    def take(struct, key, seen):
        for member, said in fields[key].items():
            found.setdefault((struct, member), said)
        for called in calls[key]:
            for other in functions.get(called, []):
                if other not in seen and (other[1] in ("T", "auto", struct) or called != "describe"):
                    take(struct, other, seen | {other})

    for key in functions.get("describe", []):
        take(key[1], key, {key})
    return found


def names_of_values(texts):
    """How each enumerator is spelt in flags, by (enumeration, enumerator), from the functions `option_names`."""
    found = {}
    for text in texts:
        for enumeration, body in NAMES.findall(text):
            for name, value in re.findall(r'\{"([^"]+)",\s*(?:\w+::)*(\w+)\}', body):
                found.setdefault((enumeration.split("::")[-1], value), name)
    return found


def several_of_a_line(compound):
    """Doxygen gives the comment behind `int a, b;` to the last one alone."""
    by_line = {}
    for member in members(compound):
        if member.get("kind") == "variable":
            by_line.setdefault(location(member), []).append(member)
    for declared in by_line.values():
        said = [member for member in declared if has_text(member)]
        for member in declared:
            if said and not has_text(member):
                member.find("briefdescription").extend(copy.deepcopy(list(said[-1].find("briefdescription"))))
                member.find("detaileddescription").extend(copy.deepcopy(list(said[-1].find("detaileddescription"))))


def complete(compounds, texts):
    """Gives symbols that no comment documents the help that the option tables have of them."""
    helps, names = helps_of_options(texts), names_of_values(texts)
    for compound in compounds.values():
        struct = re.sub(r"^(?:\w+::)*", "", compound.findtext("compoundname").replace(" ", ""))
        if struct.startswith("OptionType<") and not has_text(compound):
            set_text(compound, f"How an option of type {struct[11:-1]} is read and printed.")
        several_of_a_line(compound)
        for member in members(compound):
            name, arguments = member.findtext("name"), member.findtext("argsstring") or ""
            taken = re.sub(r"^.*[&, ](?=\w)", "", arguments.strip("()").replace("&", "& "))
            if name == "describe" and "OptionVisitor" in arguments and not has_text(member):
                options = re.search(r"OptionVisitor *&\s*\w*, *([\w:< >]+?) *&", arguments)
                set_text(member, f"Names the members of {options.group(1) if options else taken} to `visitor`: the options, their "
                                 "help and what they accept.")
            elif name == "option_names" and not has_text(member):
                set_text(member, f"How the values of {arguments.strip('() ').split(' ')[0]} are spelt in flags and files.")
            elif struct == "LambdaHooks" and not has_text(member):
                set_text(member, f"Called as Hooks::{name}().")
            elif struct.startswith("OptionType<") and not has_text(member):
                set_text(member, OPTION_TYPE.get(name, ""))
            elif not has_text(member) and (struct, name) in helps:
                set_text(member, helps[(struct, name)] + ("" if helps[(struct, name)].endswith(".") else "."))
            for value in member.iterfind("enumvalue"):
                spelling = names.get((name, value.findtext("name")))
                if spelling and not has_text(value):
                    set_text(value, f"In flags and files: {spelling}.")


# What no comment documents.

def needs_no_text(member, scope):
    """What the language makes, forbids or defines, what overrides a function, and what the comment of a class says of it."""
    name, arguments = member.findtext("name"), (member.findtext("argsstring") or "").replace(" ", "")
    of_language = arguments.endswith("=default") or arguments.endswith("=delete") or name.startswith("~")
    of_iterators = scope.endswith("Iterator") or name in ("operator==", "operator<=>", "operator=")
    converts = name == scope.split("::")[-1].split("<")[0] and len(member.findall("param")) < 2
    return of_language or of_iterators or converts or member.find("reimplements") is not None


def symbols(compounds):
    """(file, line, name, whether it is documented) of each public symbol. A public symbol is what the namespace lockstep and those
    within (but for `detail`) declare, and a public or protected member of a class."""
    for compound in compounds.values():
        scope = compound.findtext("compoundname") or ""
        if compound.get("kind") not in COMPOUNDS or compound.get("prot") == "private" or not is_within(scope):
            continue
        if compound.get("kind") != "namespace":
            yield *location(compound), scope, has_text(compound)
        for member in members(compound):
            if member.get("prot") == "private" or member.get("kind") == "friend":
                continue
            name = f"{scope}::{member.findtext('name')}"
            yield *location(member), name, has_text(member) or needs_no_text(member, scope)
            for value in member.iterfind("enumvalue"):
                yield *location(member), f"{name}::{value.findtext('name')}", has_text(value)


# What Breathe and Sphinx do not take as it is.

def throws_as_text(node):
    """Lists of exceptions become paragraphs: Breathe takes no two names in one."""
    for parent in list(node.iter()):
        for place, child in enumerate(list(parent)):
            if child.tag != "parameterlist" or child.get("kind") != "exception":
                continue
            section = element("simplesect", element("title", text="Throws"), kind="par")
            for item in child.iterfind("parameteritem"):
                names = ["".join(name.itertext()) for name in item.iterfind("parameternamelist/parametername")]
                said = item.findall("parameterdescription/para") or [element("para")]
                first = copy.deepcopy(said[0])
                shown = [element("computeroutput", text=name.rstrip(";,.")) for name in names]
                for name in shown:
                    name.tail = ", "
                shown[-1].tail = " " + (first.text or "")
                first.text = None
                for at, name in enumerate(shown):
                    first.insert(at, name)
                section.append(first)
                section.extend(said[1:])
            parent.remove(child)
            parent.insert(place, section)


def overload(member):
    """What tells functions of one name apart for Sphinx, which does not see what templates require."""
    types = ["".join("".join(part.itertext()).split()) for part in (*member.iterfind("templateparamlist/param"), *member.iterfind("param/type"))]
    end = (member.findtext("argsstring") or "").rpartition(")")[2].split("=")[0]
    return (member.findtext("name"), end, *types)


def join_overloads(members):
    """The members without those that differ from an earlier one in what they require; the earlier one gets their texts."""
    first, kept = {}, []
    for member in members:
        if member.get("kind") == "function" and overload(member) in first:
            known = first[overload(member)]
            for tag in DESCRIPTIONS[:2]:
                known.find("detaileddescription").extend(member.find(tag))
        else:
            first[overload(member)] = member
            kept.append(member)
    return kept


def is_friend(member):
    return member.get("kind") == "friend" or (member.findtext("type") or "").startswith("friend")


def without_separators(number):
    return re.sub(r"(?<=\d) ?'(?=\d)", "", number)


def make_readable(compound):
    """Leaves out what Sphinx's parser of C++ does not know: friends, digit separators, lambdas as defaults, long initializers."""
    for section in compound.iterfind("sectiondef"):
        rest = [member for member in section if member.tag == "memberdef" and not is_friend(member)]
        section[:] = join_overloads(rest)
    for parent in list(compound.iter()):
        for value in [child for child in parent if child.tag in ("defval", "initializer")]:
            text = "".join(value.itertext())
            if "[" in text or "\n" in text.strip():
                parent.remove(value)
            elif "'" in text:
                value[:] = []
                value.text = without_separators(text)
        if parent.tag in ("argsstring", "definition") and "'" in (parent.text or ""):
            parent.text = without_separators(parent.text)
    throws_as_text(compound)
