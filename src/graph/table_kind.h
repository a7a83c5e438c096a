// host only
// The kinds of tables: how each is called wherever a user meets it, and how tables that are lists are read and built.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/table_set.h"
#include "tables/image.h"

namespace sluice {

struct TableKind {
  TableType type{};     // given by add_table_kind
  std::string name;     // in requests and reports
  std::string option;   // of commands; the command that changes one; the ending of its files' names
  std::string words;    // a table of the kind
  std::string entry;    // of one, in the singular
  std::string element;  // the class that declares one

  // Of kinds whose tables are lists of lines, an entry each. Access lists, routes and adjacencies have languages and
  // code of their own, and neither of these.
  // The entry as it is kept and compared. Errors: the line is none.
  Result<std::string> (*parse)(std::string_view line) = nullptr;
  // What a stage looks up, without pointers: the bytes are used where they lie, aligned to 64. The entries are from
  // `parse`, each once. Errors: too many; out of memory.
  Result<std::vector<std::byte>> (*build)(const std::vector<std::string>& entries) = nullptr;
  // A file's text in the kind's own lines, where files may be in other languages as well; nullptr: they are not.
  Result<std::string> (*translate)(std::string_view text, const std::string& name) = nullptr;
  // Entries for documents and tests: at least three, all different.
  std::vector<std::string> examples = {};

  bool is_list() const { return parse != nullptr; }
};

// All of them: access lists, routes, adjacencies, then lists in the order in which they were added. Any thread.
std::vector<const TableKind*> table_kinds();
const TableKind& table_kind(TableType type);
// nullptr: there is none of that name, or with that option.
const TableKind* find_table_kind(std::string_view name);
const TableKind* find_table_kind_by_option(std::string_view option);
// Adds a kind of lists; one that is there already by that name is returned. Its place stays. Any thread.
const TableKind& add_table_kind(TableKind kind);

// The entries of a text, in order; `#` begins a comment. `name` stands for the text in messages. Errors: every line
// that is no entry; an entry twice.
Result<std::vector<std::string>> parse_list(const TableKind& kind, std::string_view text, const std::string& name);
// What of a line may be an entry: without its comment, and without blanks around it.
std::string_view list_line(std::string_view line);
// The image of a list: its entries as text, and what was built of them.
Result<Image> build_list(const TableKind& kind, const std::vector<std::string>& entries);
// What images of a kind of lists call themselves on disk.
ImageKind list_image_kind(const TableKind& kind);
// The entries of an image that a file holds. Errors: its lookup structure is not what its entries give.
Result<std::vector<std::string>> open_list(const TableKind& kind, const Image& image);

}  // namespace sluice
