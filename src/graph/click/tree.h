// The parsed configuration before expansion: scopes, elements by index, edges. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace sluice::click {

struct Scope;

struct CompoundClass;

// What a class name stands for: a primitive class (by name), or the alternatives of a compound.
struct ClassRef {
  std::string primitive;
  std::shared_ptr<CompoundClass> compound;
};

struct CompoundClass {
  std::string name;  // empty: written in place
  std::vector<std::unique_ptr<Scope>> alternatives;
  const Scope* defined_in = nullptr;
  // `... || ...` at its end: what the name stood for before is looked at where no alternative fits.
  std::optional<ClassRef> extends;
  uint32_t extensions = 0;  // in a row
};

struct Element {
  std::string name;  // within its scope
  bool anonymous = false;
  bool undeclared = false;  // stands for a name that was used and never declared; the parse fails
  size_t undeclared_index = SIZE_MAX;
  bool group = false;  // ( ... ): two tunnels and no scope of its own
  ClassRef type;
  size_t name_offset = 0;
  size_t name_length = 0;
  size_t class_offset = 0;
  size_t class_length = 0;
  size_t config_offset = 0;  // of the raw text between the parentheses
  size_t config_length = 0;
  uint32_t inputs_used = 0;  // highest port used from outside, plus one
  uint32_t outputs_used = 0;
};

// One end of an edge. `inner`: the `input` or `output` pseudo-element of a group (element >= 0) or of the scope
// (kOwner).
struct Endpoint {
  static constexpr int kOwner = -1;
  int element = 0;
  bool inner = false;
  uint32_t port = 0;
};

struct Edge {
  Endpoint from;
  Endpoint to;
  size_t offset = 0;  // of the arrow
};

struct Formal {
  std::string name;
  std::string keyword;  // empty: positional; "__REST__": all that is left
};

struct Define {
  std::string name;
  size_t offset = 0;  // of the value
  size_t length = 0;
};

struct Scope {
  const Scope* parent = nullptr;
  size_t offset = 0;  // where it opens
  std::vector<Formal> formals;
  std::vector<Define> defines;
  std::unordered_map<std::string, size_t> define_map;
  std::vector<Element> elements;
  std::unordered_map<std::string, int> element_map;
  std::vector<Edge> edges;
  uint32_t inputs = 0;
  uint32_t outputs = 0;
};

struct Tree {
  std::unique_ptr<Scope> root;
  std::vector<std::string> requirements;
};

}  // namespace sluice::click
