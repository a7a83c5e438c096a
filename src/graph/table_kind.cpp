// host only
#include "graph/table_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "base/assert.h"

namespace sluice {
namespace {

struct Kinds {
  std::mutex mutex;
  std::deque<TableKind> all = {
      // which stay where they are
      {TableType::kAcl, "acl", "acl", "access list", "rule", "AclTable"},
      {TableType::kRoutes, "routes", "routes", "route table", "route", "RouteTable"},
      {TableType::kAdjacency, "adjacency", "adjacencies", "adjacency table", "next hop", "AdjacencyTable"},
  };
};

Kinds& kinds() {
  static Kinds all;
  return all;
}

const TableKind* found(const std::deque<TableKind>& all, std::string_view wanted, std::string TableKind::*by) {
  const auto at = std::ranges::find(all, wanted, by);
  return at == all.end() ? nullptr : &*at;
}

std::string text_of(const std::vector<std::string>& entries) {
  std::string text;
  for (const std::string& entry : entries) text += entry + "\n";
  return text;
}

}  // namespace

std::vector<const TableKind*> table_kinds() {
  const std::scoped_lock lock(kinds().mutex);
  std::vector<const TableKind*> all;
  for (const TableKind& kind : kinds().all) all.push_back(&kind);
  return all;
}

const TableKind& table_kind(TableType type) {
  const std::scoped_lock lock(kinds().mutex);
  return kinds().all[static_cast<size_t>(type)];
}

const TableKind* find_table_kind(std::string_view name) {
  const std::scoped_lock lock(kinds().mutex);
  return found(kinds().all, name, &TableKind::name);
}

const TableKind* find_table_kind_by_option(std::string_view option) {
  const std::scoped_lock lock(kinds().mutex);
  return found(kinds().all, option, &TableKind::option);
}

const TableKind& add_table_kind(TableKind kind) {
  const std::scoped_lock lock(kinds().mutex);
  auto& all = kinds().all;
  if (const TableKind* const there = found(all, kind.name, &TableKind::name); there != nullptr) return *there;
  SLUICE_CHECK(kind.is_list() && kind.build != nullptr && kind.examples.size() >= 3 && all.size() < 255);
  kind.type = static_cast<TableType>(all.size());
  return all.emplace_back(std::move(kind));
}

std::string_view list_line(std::string_view line) {
  line = line.substr(0, line.find('#'));
  const size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
}

Result<std::vector<std::string>> parse_list(const TableKind& kind, std::string_view text, const std::string& name) {
  std::vector<std::string> entries;
  std::map<std::string, uint32_t, std::less<>> lines;  // where each entry stands
  Diagnostics findings(name, text);
  uint32_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const std::string_view line = text.substr(at, std::min(text.find('\n', at), text.size()) - at);
    ++number;
    if (const std::string_view words = list_line(line); !words.empty()) {
      const auto place = static_cast<size_t>(words.data() - text.data());
      auto entry = kind.parse(words);
      if (!entry) {
        findings.error_at(place, words.size(), entry.error().message).expected = entry.error().hint;
      } else if (const auto [there, is_new] = lines.emplace(*entry, number); !is_new) {
        findings.error_at(place, words.size(), fmt::format("{} is there already, at line {}", *entry, there->second));
      } else {
        entries.push_back(std::move(*entry));
      }
    }
    at += line.size() + 1;
  }
  if (!findings.ok()) return findings.to_error();
  return entries;
}

ImageKind list_image_kind(const TableKind& kind) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : kind.name) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return static_cast<ImageKind>(hash | 0x80000000u);  // below are those with names of their own
}

Result<Image> build_list(const TableKind& kind, const std::vector<std::string>& entries) {
  auto lookup = kind.build(entries);
  if (!lookup) return std::move(lookup).error();
  const std::string text = text_of(entries);
  ImageBuilder builder(list_image_kind(kind));
  const size_t as_text = builder.add(SectionTag::kListText, "", 1, text.size());
  const size_t as_lookup = builder.add(SectionTag::kListLookup, "", 1, lookup->size());
  if (auto ok = builder.allocate(); !ok) return std::move(ok).error();
  std::ranges::copy(std::as_bytes(std::span(text)), builder.data(as_text).begin());
  std::ranges::copy(*lookup, builder.data(as_lookup).begin());
  return builder.finish();
}

Result<std::vector<std::string>> open_list(const TableKind& kind, const Image& image) {
  const auto text = image.section(SectionTag::kListText);
  auto entries = parse_list(kind, {reinterpret_cast<const char*>(text.data()), text.size()}, "the image");
  if (!entries) return entries;
  const auto lookup = kind.build(*entries);
  if (!lookup) return lookup.error();
  if (!std::ranges::equal(*lookup, image.section(SectionTag::kListLookup)))
    return Error(fmt::format("the image of the {} is damaged", kind.words), "make it again with `sluice compile`");
  return entries;
}

}  // namespace sluice
