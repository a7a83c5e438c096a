#include "graph/click/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "graph/click/config_text.h"
#include "graph/click/lexer.h"
#include "graph/click/parser.h"

namespace sluice::click {
namespace {

constexpr unsigned kMaxNesting = 32;
constexpr size_t kMaxLibraries = 1000;

// A longer line loses its columns, so that the text stays linear in the texts.
constexpr size_t kMaxIndent = 4096;

// What a landmark can say.
std::string landmark_name(std::string_view file) {
  std::string out(file.substr(0, kMaxIndent));
  for (char& c : out) {
    if (c == '"' || static_cast<unsigned char>(c) < 0x20) c = '?';
  }
  return out;
}

class Linker {
 public:
  explicit Linker(const ParseOptions& options) : options_(options) {}

  LinkedText run(std::string_view text, const std::string& file) {
    add(text, file, 0);
    return std::move(out_);
  }

 private:
  void add(std::string_view text, const std::string& file, unsigned nesting) {
    Findings unused(std::make_shared<const SourceText>(file, text));
    Lexer lexer(unused);
    const SourceText& source = unused.source();
    size_t done = 0;
    auto copy = [&](size_t end) {
      out_.text += text.substr(done, end - done);
      done = end;
    };
    int braces = 0;
    Token last = Token::kEnd;
    while (lexer.peek().kind != Token::kEnd) {
      const Lexeme t = lexer.peek();
      // A '(' behind a name or a '}' is a configuration, which holds no statements; else it is a group.
      if (t.kind == Token::kOpenParen && (last == Token::kIdentifier || last == Token::kCloseBrace ||
                                          last == Token::kDefine || last == Token::kProvide)) {
        (void)lexer.take_config();
        last = Token::kCloseParen;
        continue;
      }
      if (t.kind == Token::kOpenParen && last == Token::kRequire) {
        const Lexer::Config config = lexer.take_config();
        last = Token::kCloseParen;
        if (braces != 0) continue;
        const std::string_view raw = text.substr(config.offset, config.length);
        copy(config.offset);
        const size_t base = out_.text.size();
        copy(std::min(config.offset + config.length + 1, text.size()));  // with its ')'
        bool any = false;
        for (const ConfigSlice& a : split_arguments(raw)) {
          std::string name;
          if (a.length == 0 || !names_library(raw.substr(a.offset, a.length), &name) || name.empty()) continue;
          out_.linked.insert(base + a.offset);
          any |= follow(name, file, base + a.offset, a.length, nesting);
        }
        if (any) resume(source, done);
        continue;
      }
      if (t.kind == Token::kOpenBrace) ++braces;
      if (t.kind == Token::kCloseBrace && braces > 0) --braces;
      last = lexer.take().kind;
    }
    copy(text.size());
  }

  // True: the library's text was put here.
  bool follow(const std::string& name, const std::string& from, size_t offset, size_t length, unsigned nesting) {
    auto problem = [&](std::string message, std::string expected, std::string suggestion) {
      out_.problems.push_back({offset, length, std::move(message), std::move(expected), std::move(suggestion)});
      return false;
    };
    if (nesting >= kMaxNesting || seen_.size() >= kMaxLibraries) {
      return problem(nesting >= kMaxNesting ? fmt::format("libraries require each other deeper than {}", kMaxNesting)
                                            : fmt::format("more than {} libraries", kMaxLibraries),
                     {}, {});
    }
    auto library = options_.library(name, from);
    if (!library.ok()) {
      return problem(fmt::format("library '{}': {}", shown(name), library.error().message),
                     "a file beside the one that requires it", library.error().hint);
    }
    if (!seen_.insert(library->name).second) return false;
    if (library->text.size() + out_.text.size() > options_.max_source_bytes) {
      return problem(
          fmt::format("with library '{}' there are more than {} bytes", shown(name), options_.max_source_bytes), {},
          {});
    }
    out_.text += fmt::format("\n# 1 \"{}\"\n", landmark_name(library->name));
    add(library->text, library->name, nesting + 1);
    return true;
  }

  // The rest of the line on a line of its own, at its old line and column.
  void resume(const SourceText& source, size_t offset) {
    const SourceText::Place place = source.place(offset);
    out_.text += fmt::format("\n# {} \"{}\"\n", place.line, landmark_name(place.file));
    out_.text.append(std::min<size_t>(place.column - 1, kMaxIndent), ' ');
  }

  const ParseOptions& options_;
  LinkedText out_;
  std::set<std::string> seen_;
};

}  // namespace

bool names_library(std::string_view argument, std::string* name) {
  const std::vector<ConfigSlice> words = split_words(argument);
  auto word = [&](size_t i) {
    return unquote(argument.substr(words[i].offset, words[i].length)).value_or(std::string());
  };
  if (words.empty() || word(0) != "library") return false;
  *name = words.size() == 2 ? word(1) : std::string();
  return true;
}

LinkedText link_libraries(std::string_view text, const std::string& file, const ParseOptions& options) {
  return Linker(options).run(text, file);
}

}  // namespace sluice::click
