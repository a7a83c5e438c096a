// The files of one run: what it reads and what it writes.
// host only
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

// A run must not write what it reads, nor write one file twice, under whatever names: a path may lead there by links or
// be spelled in another way. Files are declared before anything is read or written, and checked then.
class RunFiles {
 public:
  // `who` is what messages call it: "--in". "-" is standard input or output. An empty path is no file. Returns the
  // number of the file, from 0, in the order of the calls.
  size_t input(std::string who, std::string path);
  size_t output(std::string who, std::string path);
  // A name that the run makes, such as a socket's: nothing else may have it.
  size_t made(std::string who, std::string path);

  // An output, and the file with which it cannot be together, with the sentence about them.
  struct Clash {
    size_t output, other;
    Error error;
  };
  // As the files are now. Devices (/dev/null) may be named as often as one likes.
  std::vector<Clash> clashes() const;
  // The first of them.
  Result<void> check() const;

  struct File {
    enum class Use : unsigned char { kInput, kOutput, kMade } use;
    std::string who, path;
  };
  const std::vector<File>& files() const { return files_; }

 private:
  std::vector<File> files_;
};

}  // namespace sluice
