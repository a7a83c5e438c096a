// Every call that may fail does, one after another, in every command of the README: each file call, each start of a
// thread, each allocation. Whatever happens, the program ends by itself with a code that the help names and a message,
// its outputs are whole or as they were before, and nothing else is left behind.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <optional>
#include <set>

#include "base/assert.h"
#include "tests/testing/fault_points.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using namespace testing;
namespace fs = std::filesystem;

struct FaultCommand {
  std::string words;                 // without "sluice", divided by spaces
  std::vector<std::string> outputs;  // files that it writes: whole, or as before
  bool says_the_same = false;        // stdout holds no times: where it succeeds, it says what it says without faults
  std::set<int> codes = {0, 3};
  bool ends_by_signals = false;  // what a signal interrupts is not done again
};

constexpr const char* kOld = "as before\n";

uint64_t scale() {
  const char* given = std::getenv("SLUICE_TEST_SCALE");
  return given == nullptr ? 1 : std::max(1L, std::atol(given));
}

class CliFaultsTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    const std::string state = folder_.string() + ".faults";
    const int fd = ::open(state.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(::ftruncate(fd, sizeof(FaultState)), 0);
    void* at = ::mmap(nullptr, sizeof(FaultState), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    ASSERT_NE(at, MAP_FAILED);
    state_ = static_cast<FaultState*>(at);
    write("edge.acl",
          "permit tcp from any to any port http,https,8080-8090\ndeny udp from any to any port 53 log\n"
          "permit udp from any to any port gt 1023\ndeny from any to any\n");
    write("rib", "8.0.0.0/8 a\n9.0.0.0/8 b\n2001:db8::/32 a\n10.0.0.0/8 a\n0.0.0.0/0 a\n::/0 b\n");
    write("adj", "a 02:00:00:00:00:0a 02:00:00:00:00:01 1\nb 02:00:00:00:00:0b 02:00:00:00:00:01 2 vlan 9\n");
    write("edge.qos",
          "class voice dscp ef,cs5 strict rate 20Mbps burst 10000\nclass rest dscp others limit 500\n"
          "port rate 2Gbps\n");
    write("rest.click",
          "AclTable(edge, FILE edge.acl); RouteTable(fib, FILE rib);\n"
          "FromDump(in.pcap) -> IPInput -> ACL(TABLE edge) -> t :: Tee -> ToDump(a.pcap);\n"
          "t[1] -> ToIPSummaryDump(a.txt, FIELDS ip_src ip_dst sport dport);\n");
    write("queue.click", "FromDump(in.pcap, STOP true) -> Queue(1000) -> Unqueue -> ToDump(q.pcap);\n");
    write("addresses", "8.1.2.3\n2001:db8::1\n10.0.0.1\n");
    ASSERT_EQ(sluice("gen traffic -q --rules edge.acl --routes rib --packets 60 --ipv6 0.3 --malformed 0.01 --out "
                     "in.pcap && "
                     "\"$SLUICE\" gen rules -q --shape fw --count 20 --out fw.rules && "
                     "\"$SLUICE\" gen trace -q --rules fw.rules --packets 9000 --out trace && "
                     "\"$SLUICE\" compile -q --acl edge.acl --out edge.img && "
                     "\"$SLUICE\" compile -q --routes rib --out rib.img && gzip -k edge.acl in.pcap && bzip2 -k rib && "
                     "xz -k adj")
                  .code,
              0);
    write("mounted", kOld);
    inputs_ = files();
    start_server();
    ASSERT_EQ(run_once("--version", kFaultNone, kFaultOnce, 0).code, 0);
    common_allocations_ = state_->allocations;
  }
  void TearDown() override {
    if (link_ >= 0) ::close(link_);
    if (server_ > 0) {
      EXPECT_EQ(wait_for(server_), 0);
    }
    for (const char* end : {".faults", ".out", ".err", ".client", ".client_error"}) fs::remove(folder_.string() + end);
    CliTest::TearDown();
  }

  struct Ended {
    int code = -1;  // 128 + signal; 142: it hung
    std::string out, err;
  };

  // The program, started once, at its main(): each run goes on from there in a process of its own, which takes a tenth
  // of what a start takes.
  void start_server() {
    int link[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link), 0);
    server_ = ::fork();
    if (server_ == 0) {
      (void)::fcntl(link[1], F_SETFD, 0);
      ::setenv("LD_PRELOAD", SLUICE_INJECT_FAULTS, 1);
      ::setenv("SLUICE_FAULTS", (folder_.string() + ".faults").c_str(), 1);
      ::setenv("SLUICE_FAULTS_SERVER", std::to_string(link[1]).c_str(), 1);
      if (::chdir(folder_.c_str()) != 0) ::_exit(126);
      // Where we may: an output that cannot be renamed, as one that is mounted into a container.
      if (::geteuid() == 0 && ::unshare(CLONE_NEWNS) == 0 &&
          ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0)
        (void)::mount("mounted", "mounted", nullptr, MS_BIND, nullptr);
      ::execl(SLUICE_BINARY, "sluice", static_cast<char*>(nullptr));
      ::_exit(127);
    }
    ::close(link[1]);
    link_ = link[0];
  }
  // Starts a run with one fault and gives its process.
  pid_t start(const std::string& words, FaultClass of, FaultKind kind, uint64_t number) {
    state_->fault_class = of;
    state_->kind = kind;
    state_->number = number;
    state_->files = state_->threads = state_->allocations = 0;
    state_->fired = 0;
    state_->descriptor = -1;
    std::fill(std::begin(state_->call), std::end(state_->call), '\0');
    FaultRun run{};
    const auto put = [](char* to, size_t room, const std::string& text) {
      SLUICE_CHECK(text.size() < room);
      text.copy(to, room);
    };
    put(run.words, sizeof run.words, "sluice " + words);
    put(run.out, sizeof run.out, folder_.string() + ".out");
    put(run.error, sizeof run.error, folder_.string() + ".err");
    EXPECT_EQ(::send(link_, &run, sizeof run, MSG_NOSIGNAL), ssize_t{sizeof run});
    return answer(0).value_or(-1);
  }
  // Of the server. Nothing where it has none yet and `flags` say not to wait.
  std::optional<int> answer(int flags) {
    int32_t got = -1;
    const ssize_t n = ::recv(link_, &got, sizeof got, flags | MSG_WAITALL);
    if (n < 0 && errno == EAGAIN) return std::nullopt;
    EXPECT_EQ(n, ssize_t{sizeof got}) << "the program is gone";
    return got;
  }
  static int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }
  // The same program without faults.
  pid_t spawn(const std::string& words, const char* out, const char* err) {
    std::vector<std::string> all = {"sluice"};
    std::istringstream text(words);
    for (std::string word; text >> word;) all.push_back(word);
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string out_name = folder_.string() + out, err_name = folder_.string() + err;
    const pid_t child = ::fork();
    if (child != 0) return child;
    const int in = ::open("/dev/null", O_RDONLY);
    const int to = ::open(out_name.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int errors = ::open(err_name.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(in, 0);
    ::dup2(to, 1);
    ::dup2(errors, 2);
    for (int fd : {in, to, errors}) ::close(fd);
    if (::chdir(folder_.c_str()) != 0) ::_exit(126);
    ::execv(SLUICE_BINARY, argv.data());
    ::_exit(127);
  }
  static int wait_for(pid_t child) {
    int status = 0;
    return child < 0 || ::waitpid(child, &status, 0) != child ? -1 : code_of(status);
  }
  std::string text_of(const char* end) const {
    std::ostringstream text;
    text << std::ifstream(folder_.string() + end, std::ios::binary).rdbuf();
    return text.str();
  }
  Ended run_once(const std::string& words, FaultClass of, FaultKind kind, uint64_t number) {
    Ended ended;
    if (start(words, of, kind, number) < 0) {
      ADD_FAILURE() << "no process for " << words;
      return ended;
    }
    ended.code = code_of(answer(0).value_or(-1));
    ended.out = text_of(".out");
    ended.err = text_of(".err");
    return ended;
  }

  // Outputs as a user who runs it again has them; nothing else than inputs and these.
  void reset(const std::vector<std::string>& outputs) const {
    std::set<std::string> keep(inputs_.begin(), inputs_.end());
    for (const std::string& name : files()) {
      if (keep.count(name) == 0) fs::remove_all(folder_ / name);
    }
    for (const std::string& name : outputs) write(name, kOld);
  }

  // What is wrong with how it ended; empty: nothing.
  std::string judge(const FaultCommand& c, const Ended& e, const std::vector<std::string>& whole,
                    const std::string& said, FaultKind kind) const {
    std::string wrong;
    const bool signal = (kind == kFaultSignal && !c.ends_by_signals) || kind == kFaultShort;
    if (c.codes.count(e.code) == 0) wrong += " exit code " + std::to_string(e.code) + ";";
    // The message itself may have met the fault.
    const bool mute = state_->fired != 0 && (state_->descriptor == 2 || kind == kFaultOnwards);
    if (e.code != 0 && e.code < 128 && e.err.find("error") == std::string::npos && !mute) wrong += " no message;";
    if (e.code == 3 && e.err.find("Success") != std::string::npos) wrong += " a message that says 'Success';";
    // What a signal interrupts is done again, and what is read or written in parts is whole.
    if (signal && e.code != 0) wrong += " not done again;";
    if (e.code == 0 && c.says_the_same && e.out != said) wrong += " another stdout;";
    size_t old = 0;
    for (size_t i = 0; i < c.outputs.size(); ++i) {
      if (!exists(c.outputs[i])) {
        wrong += " " + c.outputs[i] + " is gone;";
        continue;
      }
      const std::string text = read(c.outputs[i]);
      // A packet that finds no memory is a packet that is counted.
      if (e.code == 0 && e.out.find("no-buffer") != std::string::npos) continue;
      if (text != whole[i] && (text != kOld || e.code == 0)) wrong += " " + c.outputs[i] + " is not whole;";
      old += text == kOld ? 1 : 0;
    }
    // Where nothing works any more, nothing can be put back, which is said.
    if (old != 0 && old != c.outputs.size() && kind != kFaultOnwards) wrong += " some outputs are new;";
    std::vector<std::string> expected = inputs_;
    expected.insert(expected.end(), c.outputs.begin(), c.outputs.end());
    // What was done until the input failed, under a name that says so.
    for (const std::string& name : c.outputs) {
      if (e.code != 0 && e.err.find(name + ".partial") != std::string::npos) expected.push_back(name + ".partial");
    }
    for (const std::string& name : files()) {
      if (std::find(expected.begin(), expected.end(), name) == expected.end()) wrong += " " + name + " is left;";
    }
    return wrong;
  }

  uint64_t calls_of(FaultClass of) const {
    return of == kFaultFile     ? state_->files.load()
           : of == kFaultThread ? state_->threads.load()
                                : state_->allocations.load();
  }

  // The calls that fail: all where they are at most `limit`, else that many, evenly. Of the allocations, those that
  // every command begins with (the command line's own) are looked at least.
  std::vector<uint64_t> numbers(FaultClass of, uint64_t calls, uint64_t limit) const {
    std::set<uint64_t> all;
    const auto spread = [&](uint64_t after, uint64_t until, uint64_t most) {
      const uint64_t runs = std::min(until - std::min(after, until), most);
      for (uint64_t i = 0; i < runs; ++i) all.insert(after + 1 + i * (until - after) / runs);
    };
    const uint64_t common = of == kFaultMemory ? std::min(common_allocations_, calls) : 0;
#if defined(SLUICE_SANITIZED)
    limit = (limit + 9) / 10;  // each takes ten times as long
#endif
    spread(0, common, limit / 8 * scale());
    spread(common, calls, limit * scale());
    return {all.begin(), all.end()};
  }

  // One command and what it does without faults.
  struct Good {
    Ended ended;
    std::vector<std::string> whole;
    uint64_t calls[4] = {};
  };
  Good without_faults(const FaultCommand& c) {
    Good good;
    reset(c.outputs);
    good.ended = run_once(c.words, kFaultNone, kFaultOnce, 0);
    EXPECT_EQ(good.ended.code, 0) << c.words << "\n" << good.ended.err;
    for (const std::string& name : c.outputs) good.whole.push_back(read(name));
    for (FaultClass of : {kFaultFile, kFaultThread, kFaultMemory}) good.calls[of] = calls_of(of);
    return good;
  }

  // Fails call after call.
  void sweep(const FaultCommand& c, const Good& good, FaultClass of, FaultKind kind, uint64_t limit) {
    size_t failures = 0;
    for (const uint64_t number : numbers(of, good.calls[of], limit)) {
      reset(c.outputs);
      const Ended e = run_once(c.words, of, kind, number);
      swept_ += state_->fired != 0 ? 1 : 0;
      const std::string wrong = judge(c, e, good.whole, good.ended.out, kind);
      if (wrong.empty()) continue;
      tell(c.words, of, kind, number, good.calls[of], wrong, e.err);
      if (++failures == 5) break;
    }
  }
  void tell(const std::string& words, FaultClass of, FaultKind kind, uint64_t number, uint64_t calls,
            const std::string& wrong, const std::string& err) const {
    const char* const classes[] = {"", "file call", "thread", "allocation"};
    const char* const kinds[] = {"once", "from there on", "interrupted", "in parts"};
    ADD_FAILURE() << "sluice " << words << "\n  " << classes[of] << " " << number << " of " << calls << " ("
                  << state_->call << ") failed, " << kinds[kind] << ":" << wrong << "\n"
                  << err.substr(0, 400);
  }
  void sweep(const std::vector<FaultCommand>& commands) {
    for (const FaultCommand& c : commands) {
      const Good good = without_faults(c);
      if (HasFailure()) return;
      sweep(c, good, kFaultFile, kFaultOnce, 200);
      for (const FaultKind kind : {kFaultOnwards, kFaultSignal, kFaultShort}) sweep(c, good, kFaultFile, kind, 8);
      sweep(c, good, kFaultThread, kFaultOnce, 50);
#if !defined(SLUICE_SANITIZED)
      sweep(c, good, kFaultMemory, kFaultOnce, 24);
      sweep(c, good, kFaultMemory, kFaultOnwards, 8);
#endif
    }
    // The injection reached the program: else all of this says nothing.
    EXPECT_GT(swept_, commands.size() * 5);
  }

  FaultState* state_ = nullptr;
  pid_t server_ = -1;
  int link_ = -1;
  std::vector<std::string> inputs_;
  uint64_t common_allocations_ = 0;
  uint64_t swept_ = 0;
};

TEST_F(CliFaultsTest, Generators) {
  sweep({{"gen routes -q --ipv4 20 --ipv6 5 --out routes", {"routes"}},
         {"gen rules -q --shape fw --count 20 --out rules", {"rules"}},
         {"gen trace -q --rules fw.rules --packets 50 --out flows", {"flows"}},
         {"gen traffic -q --rules edge.acl --routes rib --packets 40 --out made.pcap", {"made.pcap"}}});
}

TEST_F(CliFaultsTest, TheStandardGraph) {
  sweep({{"run -q --acl edge.acl --routes rib --adjacencies adj --in in.pcap --out out.pcap --hits hits",
          {"out.pcap", "hits"}},
         {"run -q --acl edge.img --routes rib.img --in in.pcap --out 1=one.pcap --out 2=two.pcap --adjacencies adj "
          "--icmp-errors 192.0.2.1 --workers 2",
          {"one.pcap", "two.pcap"}}});
}

// All or none, whichever step of whichever file fails.
TEST_F(CliFaultsTest, SeveralOutputs) {
  sweep({{"run -q --acl edge.acl --routes rib --in in.pcap --out out.pcap --hits hits --verdicts verdicts --dropped "
          "dropped.pcapng",
          {"out.pcap", "hits", "verdicts", "dropped.pcapng"}},
         {"run -q --acl edge.acl --in in.pcap --out out.pcap --hits mounted --verdicts verdicts",
          {"out.pcap", "mounted", "verdicts"}}});
}

TEST_F(CliFaultsTest, CompressedFiles) {
  sweep({{"run -q --acl edge.acl.gz --routes rib.bz2 --adjacencies adj.xz --in in.pcap.gz --out out.pcap.gz",
          {"out.pcap.gz"}}});
}

TEST_F(CliFaultsTest, ClassesAndPriorities) {
  sweep({{"run -q --routes rib --in in.pcap --qos edge.qos --out out.pcap", {"out.pcap"}},
         {"run -q --routes rib --in in.pcap --priorities --workers 2 --out out.pcap", {"out.pcap"}}});
}

TEST_F(CliFaultsTest, Configurations) {
  sweep({{"run -q rest.click", {"a.pcap", "a.txt"}},
         {"run -q queue.click", {"q.pcap"}},
         {"check rest.click", {}, true},
         {"show plan rest.click", {}, true}});
}

TEST_F(CliFaultsTest, EmulatedDevices) {
  // 4: the device failed, and the workers did its part.
  const std::set<int> codes = {0, 3, 4};
  // The first builds dir24, whose 32 MiB are most of its work; the others need not.
  ASSERT_EQ(sluice("compile -q --routes rib --algorithm poptrie,poptrie --out tree.img").code, 0);
  inputs_ = files();
  sweep({{"run -q --acl edge.acl --routes rib --in in.pcap --out out.pcap --device emu --mode launch",
          {"out.pcap"},
          false,
          codes},
         {"run -q --acl edge.acl --routes tree.img --in in.pcap --out out.pcap --device emu --mode persistent "
          "--workers 2",
          {"out.pcap"},
          false,
          codes},
         {"run -q --acl edge.acl --routes tree.img --in in.pcap --out out.pcap --device emu --threading master "
          "--workers 2",
          {"out.pcap"},
          false,
          codes}});
}

TEST_F(CliFaultsTest, SingleTables) {
  sweep({{"classify -q --rules edge.acl --in in.pcap --out verdicts", {"verdicts"}},
         {"classify -q --rules fw.rules --trace trace --workers 2 --out verdicts", {"verdicts"}},
         {"route -q --routes rib --in in.pcap --out hops", {"hops"}},
         {"route -q --routes rib --addresses addresses", {}, true}});
}

TEST_F(CliFaultsTest, CompiledTables) {
  sweep({{"compile -q --acl edge.acl --out new.img", {"new.img"}},
         {"compile -q --routes rib --out new.img", {"new.img"}},
         {"tables edge.acl edge.img rib.img", {}}});
}

TEST_F(CliFaultsTest, CommandsThatOnlyPrint) {
  sweep({{"explain --in in.pcap --number 7 --acl edge.acl --routes rib", {}, true},
         {"elements IPRoute", {}, true},
         {"doctor", {}, false, {0, 3, 4}},
         {"--version", {}, true}});
}

TEST_F(CliFaultsTest, AProcessThatAnswers) {
  const FaultCommand c{"run -q --acl edge.acl --routes rib --in in.pcap --out out.pcap --control sock --wait",
                       {"out.pcap"}};
  // One client asks while it waits; then it is told to end.
  const auto once = [&](FaultClass of, FaultKind kind, uint64_t number) {
    reset(c.outputs);
    Ended ended;
    const pid_t server = start(c.words, of, kind, number);
    if (server <= 0) return ended;
    std::optional<int> status;
    // While it waits, its outputs are there.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!(status = answer(MSG_DONTWAIT)) && (!exists("sock") || read("out.pcap") == kOld)) {
      if (std::chrono::steady_clock::now() > end) {
        ADD_FAILURE() << "no socket or no output within a minute";
        break;
      }
      ::usleep(2000);
    }
    if (!status) {
      (void)wait_for(spawn("show rules --socket sock", ".client", ".client_error"));
      ::kill(server, SIGTERM);
      status = answer(0);
    }
    ended.code = code_of(status.value_or(-1));
    ended.err = text_of(".err");
    return ended;
  };
  ASSERT_EQ(once(kFaultNone, kFaultOnce, 0).code, 0);
  const std::vector<std::string> whole = {read("out.pcap")};
  const auto each = [&](FaultClass of, FaultKind kind, uint64_t calls, uint64_t limit) {
    for (const uint64_t number : numbers(of, calls, limit)) {
      const Ended e = once(of, kind, number);
      const std::string wrong = judge(c, e, whole, "", kind);
      if (!wrong.empty()) tell(c.words, of, kind, number, calls, wrong, e.err);
    }
  };
  const uint64_t file_calls = state_->files, threads = state_->threads, allocations = state_->allocations;
  each(kFaultFile, kFaultOnce, file_calls, 200);
  each(kFaultFile, kFaultSignal, file_calls, 20);
  each(kFaultFile, kFaultShort, file_calls, 20);
  each(kFaultThread, kFaultOnce, threads, 10);
#if !defined(SLUICE_SANITIZED)
  each(kFaultMemory, kFaultOnce, allocations, 40);
#else
  (void)allocations;
#endif
}

// What a client is told of `save` is what became of the files: all are new, or all are as they were.
TEST_F(CliFaultsTest, AProcessThatSaves) {
  const std::vector<std::string> names = {"own.acl", "own.rib", "mounted"};
  const std::vector<std::string> old = {"permit ip from any to any\n", "0.0.0.0/0 a\n",
                                        "class v dscp ef rate 20Mbps\nclass r dscp others\n"};
  struct Saved {
    int client = -1;
    std::vector<std::string> now, left;
    uint64_t calls = 0;
  };
  const auto once = [&](FaultKind kind, uint64_t number) {
    reset({});
    for (size_t i = 0; i < names.size(); ++i) write(names[i], old[i]);
    Saved saved;
    // Faults begin with the client's first question.
    const pid_t server = start("run -q --acl own.acl --routes own.rib --qos mounted --in in.pcap --control sock --wait",
                               kFaultNone, kind, number);
    if (server <= 0) return saved;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const auto in_time = [&] { return std::chrono::steady_clock::now() < end; };
    while (!exists("sock") && in_time()) ::usleep(2000);
    while (wait_for(spawn("show runtime --socket sock", ".client", ".client_error")) != 0 && in_time()) ::usleep(2000);
    EXPECT_TRUE(in_time()) << "no answer within a minute";
    for (const char* change : {"acl add acl deny udp from any to any port 53 --at 1", "routes add fib 9.0.0.0/8 via b",
                               "qos set v rate 30Mbps"})
      EXPECT_EQ(wait_for(spawn(std::string(change) + " --socket sock", ".client", ".client_error")), 0)
          << change << text_of(".client_error");
    state_->files = 0;
    state_->fault_class = number == 0 ? kFaultNone : kFaultFile;
    saved.client = wait_for(spawn("save --socket sock", ".client", ".client_error"));
    saved.calls = state_->files;
    state_->fault_class = kFaultNone;
    ::kill(server, SIGTERM);
    (void)answer(0);
    for (const std::string& name : names) saved.now.push_back(read(name));
    for (const std::string& name : files()) {
      if (std::ranges::find(inputs_, name) == inputs_.end() && std::ranges::find(names, name) == names.end())
        saved.left.push_back(name);
    }
    return saved;
  };
  const Saved good = once(kFaultOnce, 0);
  ASSERT_EQ(good.client, 0) << text_of(".client_error");
  for (size_t i = 0; i < names.size(); ++i) ASSERT_NE(good.now[i], old[i]);
  for (const FaultKind kind : {kFaultOnce, kFaultSignal, kFaultShort}) {
    for (const uint64_t number : numbers(kFaultFile, good.calls, kind == kFaultOnce ? 200 : 8)) {
      const Saved saved = once(kind, number);
      EXPECT_TRUE(saved.now == good.now || (saved.now == old && saved.client != 0))
          << "file call " << number << " of " << good.calls << " (" << state_->call
          << ") failed, and the client ended with " << saved.client << ":\n"
          << text_of(".client_error") << ::testing::PrintToString(saved.now);
      EXPECT_EQ(saved.left, std::vector<std::string>()) << number << " " << state_->call;
    }
  }
}

TEST_F(CliFaultsTest, CommandsThatAskAProcess) {
  const pid_t server = spawn("run -q --acl edge.acl --routes rib --in in.pcap --control sock --wait", ".s", ".se");
  for (int i = 0; i < 5000 && sluice("show runtime --socket sock").code != 0; ++i) ::usleep(2000);
  inputs_ = files();
  const std::set<int> codes = {0, 3, 130};
  sweep({{"show rules --socket sock", {}, false, codes, true}, {"show tables --socket sock", {}, false, codes, true}});
  ::kill(server, SIGTERM);
  EXPECT_EQ(wait_for(server), 0);
  for (const char* end : {".s", ".se"}) fs::remove(folder_.string() + end);
}

}  // namespace
}  // namespace sluice
