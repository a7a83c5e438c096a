// host only
// Message and StaticThreadSched. Source: their Click manual pages.
#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {
namespace {

class InfoElement : public Element {
 public:
  ElementKind kind() const override { return ElementKind::kInfo; }
};

class Message final : public InfoElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    Diagnostic d = arguments.error_at("MESSAGE", arguments.get_string("MESSAGE"));
    if (arguments.get_string("TYPE") != "ERROR") d.severity = Diagnostic::Severity::kWarning;
    diagnostics.add(std::move(d));
  }
};

class StaticThreadSched final : public InfoElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    Diagnostic d = arguments.error_at("ASSIGNMENT", "elements have no threads of their own; this has no effect");
    d.severity = Diagnostic::Severity::kWarning;
    d.suggestion = "--workers says how many threads share the packets";
    diagnostics.add(std::move(d));
  }
};

}  // namespace

void register_info(Registry& registry) {
  ElementClass message;
  message.name = "Message";
  message.group = "Control";
  message.summary = "says something when the configuration is read";
  message.description = "The text appears as a warning at this place, or as an error, which ends it.";
  message.arguments = {
      {.name = "MESSAGE", .kind = ArgumentKind::kString, .positional = true, .mandatory = true, .help = "the text"},
      {.name = "TYPE",
       .kind = ArgumentKind::kChoice,
       .positional = true,
       .default_text = "MESSAGE",
       .help = "what it is",
       .choices = {"MESSAGE", "WARNING", "ERROR"}}};
  message.inputs = message.outputs = {0, 0};
  message.example = "Message(\"this file is an example\");";
  message.make = make_element<Message>();
  registry.add(std::move(message));

  ElementClass threads;
  threads.name = "StaticThreadSched";
  threads.group = "Control";
  threads.summary = "accepted from Click's configurations, with a warning";
  threads.description = "Workers share packets, not elements: which thread runs an element is not a setting.";
  threads.arguments = {{.name = "ASSIGNMENT",
                        .kind = ArgumentKind::kRaw,
                        .positional = true,
                        .repeated = true,
                        .help = "ELEMENT THREAD"}};
  threads.inputs = threads.outputs = {0, 0};
  threads.example = "StaticThreadSched(source 0, queue 1);";
  threads.make = make_element<StaticThreadSched>();
  registry.add(std::move(threads));
}

}  // namespace sluice
