#include "checkpoint/remove_checkpoint.h"

#include <lockstep/base/error.h>

#include "checkpoint/folder_leftovers.h"
#include "formats/checkpoint_manifest.h"
#include "formats/checkpoint_siblings.h"

namespace lockstep::detail {

namespace fs = std::filesystem;

void remove_checkpoint(const fs::path& folder) {
  require_name(folder);
  std::error_code failure;
  if (fs::is_symlink(folder, failure) || !fs::exists(folder / kManifestName, failure)) return;
  fs::remove(folder / kManifestName, failure);
  remove_or_warn(folder);
}

void link_checkpoint(const fs::path& link, const fs::path& target) {
  auto draft = link;
  draft += ".link";
  std::error_code failure;
  fs::remove(draft, failure);
  fs::create_directory_symlink(fs::relative(target, link.parent_path(), failure), draft, failure);
  if (!failure && !fs::is_symlink(link)) remove_checkpoint(link);
  if (!failure) fs::rename(draft, link, failure);
  if (!failure) return;
  throw IoError("checkpoint", {.what = "link " + link.string() + " to " + target.string() + " cannot be made",
                               .got = failure.message(),
                               .hint = "a checkpoint of its own can be kept everywhere: save_last true"});
}

}  // namespace lockstep::detail
