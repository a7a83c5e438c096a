// What is said of methods is what opening one says.
#include "ports/methods_here.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

namespace sluice {
namespace {

TEST(MethodsHere, WithoutCapabilitiesEachSaysWhatItLacks) {
  const pid_t child = fork();
  if (child == 0) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2]{};
    if (syscall(SYS_capset, &header, none) != 0) _exit(2);
    for (const MethodHere& m : port_methods_here()) {
      // DPDK has virtual devices that need none.
      if (m.method == PortMethod::kDpdk) continue;
      if (m.works || m.lacks.empty() || m.mend.empty()) _exit(1);
    }
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(MethodsHere, NamesEveryMethodOnce) {
  const auto methods = port_methods_here();
  std::set<PortMethod> seen;
  for (const MethodHere& m : methods) {
    EXPECT_EQ(m.works, m.lacks.empty());
    EXPECT_TRUE(seen.insert(m.method).second);
    const auto parsed = parse_port_method(to_string(m.method));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, m.method);
  }
  EXPECT_EQ(seen.size(), port_method_names().size());
  EXPECT_FALSE(seen.contains(PortMethod::kAuto));
}

}  // namespace
}  // namespace sluice
