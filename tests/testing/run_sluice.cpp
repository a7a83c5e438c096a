// host only
#include "tests/testing/run_sluice.h"

#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace sluice::testing {

namespace fs = std::filesystem;

void CliTest::SetUp() {
  std::string pattern = (fs::temp_directory_path() / "sluice-cli-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
  // Sockets that nobody named are this test's own: others run beside it.
  const std::string own = pattern + ".run";
  ASSERT_TRUE(fs::create_directory(own));
  ASSERT_EQ(::chmod(own.c_str(), 0700), 0);
  ASSERT_EQ(::setenv("XDG_RUNTIME_DIR", own.c_str(), 1), 0);
}
void CliTest::TearDown() {
  std::error_code ignored;
  if (folder_.empty()) return;
  fs::remove_all(folder_, ignored);
  fs::remove_all(folder_.string() + ".run", ignored);
}

Said CliTest::shell(const std::string& command) const {
  // Outside the folder, so that files() shows what the program left and nothing else.
  const std::string out = folder_.string() + ".out", err = folder_.string() + ".err";
  const std::string whole = "cd '" + folder_.string() + "' && export SLUICE='" + SLUICE_BINARY + "' && { " + command +
                            "\n} > '" + out + "' 2> '" + err + "' < /dev/null";
  // A command that hangs ends with 124 in place of the test program's own end, which would not say which it was.
  const char* argv[] = {"timeout", "--kill-after=10", "300", "bash", "-c", whole.c_str(), nullptr};
  Said said;
  // Not by fork(): that copies this process's page tables, which are long where the sanitizers have theirs as well.
  pid_t child = -1;
  if (::posix_spawnp(&child, "timeout", nullptr, nullptr, const_cast<char* const*>(argv), environ) != 0) return said;
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return said;
  said.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  auto take = [](const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    fs::remove(file);
    return text.str();
  };
  said.out = take(out);
  said.err = take(err);
  return said;
}

std::vector<std::string> CliTest::files() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace sluice::testing
