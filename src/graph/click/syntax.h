// The Click configuration language: text to a flat graph of elements and connections.
//
// Source: click(5) and the behaviour of Click 2.1's own parser for declarations, port lists, `=>`, element groups and
// compound elements. Deviations: a comma inside parentheses does not split a configuration; an unknown variable is an
// error (Click leaves it as it stands) except in the classes of ParseOptions::free_variable_classes; a compound's
// alternatives are chosen by arguments first and by used ports second. Not here: archives, `provide`.
//
// Host only. Nothing here knows which element classes exist unless the caller says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "graph/click/port_map.h"
#include "graph/click/source.h"

namespace sluice {

// One element after expansion.
struct ClickElement {
  std::string name;           // flat: "outer/inner"; anonymous ones are "Class@N"
  std::string class_name;     // never a compound
  std::string configuration;  // raw text between the parentheses, variables substituted, comments and quotes kept
  SourcePos name_position;
  SourcePos class_position;
  ConfigurationOrigin configuration_origin;  // maps bytes of `configuration` to the source

  friend bool operator==(const ClickElement& a, const ClickElement& b) {
    return a.name == b.name && a.class_name == b.class_name && a.configuration == b.configuration;
  }
};

// One edge between elements of the graph, by index.
struct ClickConnection {
  uint32_t from = 0;
  uint32_t from_port = 0;
  uint32_t to = 0;
  uint32_t to_port = 0;
  SourcePos position;  // the arrow (of the inner end, where the edge crosses compounds)

  friend bool operator==(const ClickConnection& a, const ClickConnection& b) {
    return a.from == b.from && a.from_port == b.from_port && a.to == b.to && a.to_port == b.to_port;
  }
};

// A flat graph. Connections are sorted by (from, from_port, to, to_port) without duplicates. Equality ignores
// positions.
struct ClickGraph {
  std::vector<ClickElement> elements;  // in the order of declaration; then those of compounds, level by level
  std::vector<ClickConnection> connections;
  std::vector<std::string> requirements;  // each argument of each `require(...)`, comments removed

  // Index of the element, or -1.
  int find(std::string_view name) const;
  // Sorts the connections and drops duplicates; for graphs that a program builds.
  void normalize();

  friend bool operator==(const ClickGraph&, const ClickGraph&) = default;
};

// What `require(library NAME)` names.
struct ClickLibrary {
  std::string name;  // for messages, and to tell libraries apart: each is read once
  std::string text;
};

struct ParseOptions {
  // NAME=VAL of the command line: they override `define` of the file's outermost scope, or add to it.
  std::vector<std::pair<std::string, std::string>> defines;
  // Primitive element classes. When given, an unknown class is an error here, with a suggestion; when empty, any
  // capitalised name is taken for a class.
  std::vector<std::string> known_classes;
  // Classes with a variable language of their own: an unknown $name in their configuration stays as it stands.
  std::vector<std::string> free_variable_classes = {"Script", "DriverManager"};
  // What `require(NAME)` and `require(package NAME)` may name, in the words of Click's own element requirements; any
  // other is an error.
  std::vector<std::string> provided = {"sluice", "userlevel", "ip6", "int64", "batch", "pcap", "compact_config"};

  // Reads library `name` as required by the text `from` (the name of the file, or of a library). None: there are no
  // libraries. What it gives is read as part of the file, at the place of the first statement that requires it.
  std::function<Result<ClickLibrary>(const std::string& name, const std::string& from)> library;

  // Files in place of devices' ports.
  std::vector<PortMap> ports;

  // Limits: past one, parsing ends with an error that names it.
  size_t max_source_bytes = size_t{64} << 20;  // with libraries
  size_t max_elements = 100000;                // expanded elements and compound instances, counted separately
  size_t max_connections = 400000;             // expanded
  size_t max_text_bytes = 32 << 20;            // names and configurations that expansion writes
  uint32_t max_depth = 64;                     // nesting of braces, groups and compound instances
};

// The largest port number that the language takes.
constexpr uint32_t kMaxClickPort = 4095;

// Parses and expands `text`. `file` is used in findings and for libraries; nothing is opened here. On failure the Error
// holds every finding (the first Diagnostics::kLimit) in file order. Time and memory are bounded by the text and by the
// limits.
Result<ClickGraph> parse_click(std::string_view text, std::string file, const ParseOptions& options = {});

}  // namespace sluice
