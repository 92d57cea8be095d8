// The verb `man-pages` of the `lockstep` command.
#pragma once

#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>

struct ManPagesFlags {
  std::string folder;
};

CLI::App* add_man_pages(CLI::App& app, ManPagesFlags& flags);

/// The manual page, in roff's macros of man(7), of `verb`, or of `app` itself where they are the same: made
/// from the options that --help prints.
std::string man_page(const CLI::App& app, const CLI::App& verb);

/// Writes lockstep.1 and lockstep-VERB.1 of each verb of `app` into the folder, which is made. Returns 0.
/// @throws lockstep::IoError
int write_man_pages(const ManPagesFlags& flags, const CLI::App& app);
