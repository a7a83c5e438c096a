// The command line as the commands describe it. CLI11 reads it; its headers take longer to compile than most commands,
// so that only command_line.cpp and what looks at all options (program.cpp, help.cpp and two of apps/bench) include
// them. host only
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace sluice::app {

// A number has to lie in [low, high]; of an option whose value is one.
struct Range {
  template <typename T>
  Range(T least, T most) : low(least), high(most) {}
  std::variant<int, unsigned, uint64_t, double> low, high;
};
// A word has to be one of these.
struct OneOf {
  std::vector<std::string> words;
};

// A handle, as is Command: both live as long as the program's command line. Each call returns the option again.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  explicit operator bool() const { return option_ != nullptr; }
  Option* operator->() { return this; }
  CLI::Option* get() const { return option_; }

  Option& type_name(const std::string& name);
  Option& check(const Range& range);
  Option& check(const OneOf& words);
  // Returns what is wrong with a value; empty: nothing.
  Option& check(std::function<std::string(const std::string&)> wrong);
  // A number of bytes may have a unit: KiB, MiB, GiB, or KB and so on, which mean the same.
  Option& as_size();
  // A number of seconds, or of parts of one, may have a unit: ns, us, ms, s, min or h. `unit`: seconds of one.
  Option& as_duration(double unit = 1);
  Option& capture_default_str();
  Option& required();
  Option& delimiter(char separator);
  Option& expected(int values);
  Option& take_all();
  Option& group(const std::string& name);
  template <typename... More>
  Option& needs(const Option& other, const More&... more) {
    needs_one(other);
    (needs_one(more), ...);
    return *this;
  }
  template <typename... More>
  Option& excludes(const Option& other, const More&... more) {
    excludes_one(other);
    (excludes_one(more), ...);
    return *this;
  }
  template <typename... More>
  Option& excludes(const char* other, const More*... more) {
    excludes_one(other);
    (excludes_one(more), ...);
    return *this;
  }

 private:
  void needs_one(const Option& other);
  void excludes_one(const Option& other);
  void excludes_one(const char* name);
  CLI::Option* option_;
};

class Command {
 public:
  Command() = default;  // names none yet
  explicit Command(CLI::App& app) : app_(&app) {}
  Command* operator->() { return this; }
  Command& operator*() { return *this; }
  CLI::App& app() const { return *app_; }

  // `value`: std::string (or an optional one), bool, int, unsigned, uint64_t, double, or a vector of one of them; it
  // outlives the command line. Numbers are decimal; what does not fit is an error.
  template <typename T>
  Option add_option(const std::string& name, T& value, const std::string& help);
  // `type`: what stands for the value in the help.
  template <typename T>
  Option add_option(const std::string& name, const std::string& type, T& value, const std::string& help) {
    return add_option(name, value, help)->type_name(type);
  }
  Option add_flag(const std::string& name, bool& value, const std::string& help);
  // The two usual kinds of options with a default, which --help shows: a number of a range, and one of some words.
  template <typename T>
  Option add_number(const std::string& name, const std::string& type, T& value, const std::string& help,
                    const Range& range) {
    return add_option(name, type, value, help)->check(range).capture_default_str();
  }
  Option add_word(const std::string& name, const std::string& type, std::string& value, const std::string& help,
                  const std::vector<std::string>& words) {
    return add_option(name, type, value, help)->check(OneOf{words}).capture_default_str();
  }
  // Several of them, comma-separated.
  Option add_numbers(const std::string& name, const std::string& type, std::vector<uint32_t>& values,
                     const std::string& help, const Range& range) {
    return add_option(name, type, values, help)->delimiter(',').check(range).capture_default_str();
  }
  Option add_words(const std::string& name, const std::string& type, std::vector<std::string>& values,
                   const std::string& help, const std::vector<std::string>& words) {
    return add_option(name, type, values, help)->delimiter(',').check(OneOf{words}).capture_default_str();
  }
  Command add_subcommand(const std::string& name, const std::string& summary);
  Command& require_subcommand(int count);
  Command& group(const std::string& name);
  Command& footer(const std::string& text);
  Command& callback(std::function<void()> run);
  // The options that --help shows, in sections; --help-all shows all. Where this is not called, --help does.
  Command& first_help(std::vector<std::pair<std::string, std::vector<std::string>>> sections, const std::string& rest);
  // How often it stands on the command line.
  size_t count(const std::string& option) const;
  // No option of that name: false as a bool.
  Option find(const std::string& option) const;

 private:
  CLI::App* app_ = nullptr;
};

}  // namespace sluice::app
