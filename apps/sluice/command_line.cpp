// host only
#include "command_line.h"

#include <CLI/CLI.hpp>
#include <optional>
#include <utility>

namespace sluice::app {

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}
Option& Option::check(const Range& range) {
  std::visit(
      [&](auto low) {
        using T = decltype(low);
        option_->check(CLI::Range(low, std::get<T>(range.high)));
      },
      range.low);
  return *this;
}
Option& Option::check(const OneOf& words) {
  option_->check(CLI::IsMember(words.words));
  return *this;
}
Option& Option::check(std::function<std::string(const std::string&)> wrong) {
  option_->check(std::move(wrong));
  return *this;
}
Option& Option::as_size() {
  option_->transform(CLI::AsSizeValue(false));
  return *this;
}
Option& Option::capture_default_str() {
  option_->capture_default_str();
  return *this;
}
Option& Option::required() {
  option_->required();
  return *this;
}
Option& Option::delimiter(char separator) {
  option_->delimiter(separator);
  return *this;
}
Option& Option::expected(int values) {
  option_->expected(values);
  return *this;
}
Option& Option::take_all() {
  option_->take_all();
  return *this;
}
Option& Option::group(const std::string& name) {
  option_->group(name);
  return *this;
}
void Option::needs_one(const Option& other) {
  option_->needs(other.option_);
}
void Option::excludes_one(const Option& other) {
  option_->excludes(other.option_);
}
void Option::excludes_one(const char* name) {
  option_->excludes(name);
}

template <typename T>
Option Command::add_option(const std::string& name, T& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}
Option Command::add_flag(const std::string& name, bool& value, const std::string& help) {
  return Option(app_->add_flag(name, value, help));
}
Command Command::add_subcommand(const std::string& name, const std::string& summary) {
  return Command(*app_->add_subcommand(name, summary));
}
Command& Command::require_subcommand(int count) {
  app_->require_subcommand(count);
  return *this;
}
Command& Command::group(const std::string& name) {
  app_->group(name);
  return *this;
}
Command& Command::footer(const std::string& text) {
  app_->footer(text);
  return *this;
}
Command& Command::callback(std::function<void()> run) {
  app_->callback(std::move(run));
  return *this;
}
size_t Command::count(const std::string& option) const {
  return app_->count(option);
}
Option Command::find(const std::string& option) const {
  return Option(app_->get_option_no_throw(option));
}

template Option Command::add_option(const std::string&, std::string&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<std::string>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Command::add_option(const std::string&, int&, const std::string&);
template Option Command::add_option(const std::string&, unsigned&, const std::string&);
template Option Command::add_option(const std::string&, uint64_t&, const std::string&);
template Option Command::add_option(const std::string&, int64_t&, const std::string&);
template Option Command::add_option(const std::string&, double&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<unsigned>&, const std::string&);

}  // namespace sluice::app
