// sluice elements: the classes that configurations may name, from their own schemas.
// host only
#include "app.h"
#include "batch/drop_reason.h"
#include "control/json.h"
#include "graph/arguments.h"
#include "graph/processing.h"
#include "pipeline.h"

namespace sluice::app {
namespace {

std::string ports_text(const PortRange& range) {
  if (range.max == kAnyPorts) return fmt::format("{} or more", range.min);
  return range.min == range.max ? std::to_string(range.min) : fmt::format("{} to {}", range.min, range.max);
}

std::string processing_of(const ElementClass& c) {
  return std::string(processing_code(c, c.make(c.name)->kind()));
}

Json element_json(const ElementClass& c) {
  Json json{{"name", c.name},
            {"aliases", c.aliases},
            {"group", c.group},
            {"summary", c.summary},
            {"description", c.description},
            {"synopsis", synopsis(c.arguments)},
            {"arguments", Json::array()}};
  for (const ArgumentSpec& a : c.arguments) {
    Json one{{"name", a.name},
             {"kind", kind_name(a.kind)},
             {"positional", a.positional},
             {"mandatory", a.mandatory},
             {"repeated", a.repeated}};
    if (!a.default_text.empty()) one["default"] = a.default_text;
    if (!a.unit.empty()) one["unit"] = a.unit;
    if (!a.choices.empty()) one["choices"] = a.choices;
    one["accepts"] = describe(a);
    one["help"] = a.help;
    json["arguments"].push_back(one);
  }
  auto range = [](const PortRange& r) {
    return Json{{"min", r.min}, {"max", r.max == kAnyPorts ? Json(nullptr) : Json(r.max)}};
  };
  json["inputs"] = range(c.inputs);
  json["outputs"] = range(c.outputs);
  json["processing"] = processing_of(c);
  json["output_docs"] = c.output_docs;
  json["drops"] = Json::array();
  for (DropReason d : c.drops) json["drops"].push_back(to_string(d));
  json["example"] = c.example;
  return json;
}

// All of them, in the order of their numbers, for the reference page.
Json drop_reasons_json() {
  Json json = Json::array();
  for (unsigned i = 0; i < static_cast<unsigned>(DropReason::kCount); ++i) {
    const auto reason = static_cast<DropReason>(i);
    json.push_back({{"number", i}, {"name", to_string(reason)}, {"description", describe(reason)}});
  }
  return json;
}

std::string manual(const ElementClass& c) {
  std::string t = fmt::format("{}: {}\n", c.name, c.summary);
  if (!c.aliases.empty()) t += fmt::format("also called {}\n", fmt::join(c.aliases, ", "));
  t += fmt::format("\n  {}({})\n\n{}\n", c.name, synopsis(c.arguments), c.description);
  t += fmt::format("\ninputs {}, outputs {}, processing {} (h push, l pull, a either)\n", ports_text(c.inputs),
                   ports_text(c.outputs), processing_of(c));
  for (size_t i = 0; i < c.output_docs.size(); ++i) t += fmt::format("  output {}: {}\n", i, c.output_docs[i]);
  if (!c.arguments.empty()) t += "\narguments\n";
  for (const ArgumentSpec& a : c.arguments) {
    std::string about = a.help;
    about += fmt::format(" ({}", describe(a));
    if (!a.unit.empty() && about.find(a.unit) == std::string::npos) about += ", " + a.unit;
    if (a.mandatory) about += ", mandatory";
    if (a.repeated) about += ", may be repeated";
    if (!a.default_text.empty()) about += ", default " + a.default_text;
    t += fmt::format("  {:<12} {})\n", a.name, about);
  }
  if (!c.drops.empty()) t += "\ndrops\n";
  for (DropReason d : c.drops) t += fmt::format("  {:<24} {}\n", to_string(d), describe(d));
  if (!c.example.empty()) t += fmt::format("\nexample\n  {}\n", c.example);
  return t;
}

Exit elements(const std::string& name) {
  if (name.empty()) {
    Json json = Json::array();
    TextTable table({"group", "element", "description"});
    for (const auto& c : registry().classes()) {
      json.push_back(element_json(*c));
      table.add({c->group, c->name, c->summary});
    }
    print_result({{"elements", json}, {"drop_reasons", drop_reasons_json()}}, table.str());
    return Exit::kOk;
  }
  const ElementClass* c = registry().find(name);
  if (c == nullptr) {
    const std::string near = closest_match(name, registry().names());
    fail(Exit::kUsage, fmt::format("there is no element class '{}'", name),
         near.empty() ? "'sluice elements' lists them" : fmt::format("did you mean '{}'?", near));
  }
  print_result(element_json(*c), manual(*c));
  return Exit::kOk;
}

}  // namespace

void add_elements(Command root) {
  auto name = std::make_shared<std::string>();
  Command sub = add_subcommand(
      root, "elements", "Tools", "Lists the element classes of configurations, or documents one.",
      "sluice elements\nsluice elements IPRoute\nsluice elements -o json", [name] { return elements(*name); });
  sub->add_option("name", "NAME", *name, "A class to document");
}

}  // namespace sluice::app
