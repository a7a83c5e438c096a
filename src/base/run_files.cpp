// host only
#include "base/run_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tuple>

#include "base/atomic_file.h"

namespace sluice {
namespace {

using Use = RunFiles::File::Use;

// What makes two names one file.
struct Identity {
  bool known = false;
  mode_t type = 0;   // S_IFMT; 0: nothing has the name yet
  dev_t device = 0;  // of the file, or of the folder where it would be
  ino_t inode = 0;
  std::string name;     // in the folder, of what is not there yet
  int descriptor = -1;  // of what is written through one

  bool same_file(const Identity& o) const {
    return known && o.known && std::tie(type, device, inode, name) == std::tie(o.type, o.device, o.inode, o.name);
  }
};

Identity of_status(const struct stat& status) {
  Identity id;
  id.known = true;
  id.type = status.st_mode & S_IFMT;
  id.device = status.st_dev;
  id.inode = status.st_ino;
  return id;
}

Identity of_place(const OutputPlace& place) {
  struct stat status {};
  if (place.kind == OutputPlace::Kind::kDescriptor) {
    if (::fstat(place.descriptor, &status) != 0) return {};
    Identity id = of_status(status);
    id.descriptor = place.descriptor;
    return id;
  }
  if (::lstat(place.path().c_str(), &status) == 0) return of_status(status);
  if (::stat(place.folder.c_str(), &status) != 0) return {};
  Identity id = of_status(status);
  id.type = 0;
  id.name = place.name;
  return id;
}

// What an input or an output really is; for an output, also where it is written if the run is interrupted.
struct Found {
  Identity file, partial;
};

Found find(const RunFiles::File& file) {
  Found found;
  struct stat status {};
  if (file.use == Use::kInput) {
    if ((file.path == "-" ? ::fstat(STDIN_FILENO, &status) : ::stat(file.path.c_str(), &status)) == 0) {
      found.file = of_status(status);
      return found;
    }
  }
  // A place that cannot be found is reported by whoever opens it.
  auto place = find_output(file.path);
  if (!place.ok() || (file.use == Use::kInput && place->kind == OutputPlace::Kind::kDescriptor)) return found;
  found.file = of_place(*place);
  if (file.use == Use::kOutput && place->kind == OutputPlace::Kind::kFile) {
    place->name += kPartialSuffix;
    found.partial = of_place(*place);
  }
  return found;
}

// Whether an output and another file cannot be together.
bool same(const Identity& output, const Identity& other, Use use) {
  // Two outputs through one descriptor mix, whatever it leads to.
  if (output.known && other.known && output.descriptor >= 0 && output.descriptor == other.descriptor) return true;
  if (!output.same_file(other) || output.type == S_IFCHR) return false;
  // A process may talk with another one by a socket that is its input and its output.
  return output.type != S_IFSOCK || use != Use::kInput;
}

}  // namespace

size_t RunFiles::input(std::string who, std::string path) {
  files_.push_back({Use::kInput, std::move(who), std::move(path)});
  return files_.size() - 1;
}
size_t RunFiles::output(std::string who, std::string path) {
  files_.push_back({Use::kOutput, std::move(who), std::move(path)});
  return files_.size() - 1;
}
size_t RunFiles::made(std::string who, std::string path) {
  files_.push_back({Use::kMade, std::move(who), std::move(path)});
  return files_.size() - 1;
}

std::vector<RunFiles::Clash> RunFiles::clashes() const {
  std::vector<Found> found;
  found.reserve(files_.size());
  for (const File& file : files_) found.push_back(file.path.empty() ? Found() : find(file));
  std::vector<Clash> clashes;
  const auto add = [&](size_t output, size_t other, std::string message) {
    const bool input = files_[other].use == Use::kInput;
    clashes.push_back({output, other,
                       Error(std::move(message), input ? "write to another file: this one is read by the run"
                                                       : "write to another file: two outputs cannot share one")});
  };
  // Each output with the inputs, the names that are made and the outputs before it.
  for (size_t i = 0; i < files_.size(); ++i) {
    const File& a = files_[i];
    if (a.use != Use::kOutput) continue;
    for (size_t k = 0; k < files_.size(); ++k) {
      const File& b = files_[k];
      if (k == i || (b.use == Use::kOutput && k > i)) continue;
      if (b.use == Use::kOutput && found[i].file.descriptor == STDOUT_FILENO &&
          found[k].file.descriptor == STDOUT_FILENO) {
        clashes.push_back(
            {i, k,
             Error(fmt::format("{} and {} both write to standard output", b.who, a.who), "give one of them a file")});
        break;
      }
      if (same(found[i].file, found[k].file, b.use)) {
        add(i, k, fmt::format("{}: '{}' is the same file as '{}' of {}", a.who, a.path, b.path, b.who));
        break;
      }
      const bool first = found[i].partial.same_file(found[k].file), second = found[i].file.same_file(found[k].partial);
      if (first || second) {
        const File &whole = first ? a : b, &named = first ? b : a;
        add(i, k,
            fmt::format("{}: '{}' is where '{}' of {} goes if the run is interrupted", named.who, named.path,
                        whole.path, whole.who));
        break;
      }
    }
  }
  return clashes;
}

Result<void> RunFiles::check() const {
  std::vector<Clash> all = clashes();
  if (all.empty()) return {};
  return std::move(all.front().error);
}

}  // namespace sluice
