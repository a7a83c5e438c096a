#include "graph/click/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "graph/click/config_text.h"
#include "graph/click/lexer.h"
#include "graph/click/library.h"

namespace sluice::click {
namespace {

constexpr size_t kMaxNameBytes = 4096;

bool is_arrow(Token t) {
  return t == Token::kArrow || t == Token::kDoubleArrow;
}

bool has_all_digit_component(std::string_view name) {
  while (true) {
    const size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos) return true;
    if (slash == std::string_view::npos) return false;
    name.remove_prefix(slash + 1);
  }
}

struct PortList {
  std::vector<uint32_t> ports;
  bool given = false;
  bool expandable = false;  // a trailing comma: as many more as the other side needs
  size_t offset = 0;
  size_t length = 0;
};

// One member of a comma list, before it is known whether its name is an element or a class.
struct Item {
  std::string name;
  size_t name_offset = 0;
  size_t name_length = 0;
  PortList in;
  PortList out;
  bool implicit = false;  // stands for `input` or `output`
  bool group = false;
  bool bare = true;       // only a name
  bool in_place = false;  // an element given by a compound
  bool has_type = false;
  ClassRef type;
  size_t type_offset = 0;
  size_t type_length = 0;
  std::optional<Lexer::Config> config;
  int element = 0;  // after resolution
  bool inner = false;
  bool failed = false;
};

class Parser {
 public:
  Parser(Findings& findings, const ParseOptions& options, const std::unordered_set<size_t>& linked)
      : findings_(findings), options_(options), linked_(linked), lexer_(findings) {
    for (const std::string& name : options.known_classes) known_.insert(name);
  }

  Tree parse() {
    Tree tree;
    tree.root = std::make_unique<Scope>();
    scope_ = tree.root.get();
    classes_.emplace_back();
    while (!stopped_ && lexer_.peek().kind != Token::kEnd) {
      if (parse_statement()) continue;
      const Lexeme stray = lexer_.take();
      Diagnostic& d =
          findings_.error(stray.offset, stray.length, fmt::format("unexpected '{}'", shown(lexer_.text(stray))));
      d.expected = "an element, a class or a statement";
      if (stray.kind == Token::kCloseBrace) d.suggestion = "no '{' is open here";
      if (stray.kind == Token::kCloseParen) d.suggestion = "no '(' is open here";
    }
    finish_scope();
    report_undeclared();
    tree.requirements = std::move(requirements_);
    return tree;
  }

 private:
  // --- helpers -----------------------------------------------------------------------------------------------------
  bool nested() const { return depth_ > 0; }
  std::string word(const Lexeme& lexeme) const { return std::string(lexer_.text(lexeme)); }

  Diagnostic& unexpected(const Lexeme& lexeme, std::string expected) {
    Diagnostic& d =
        lexeme.kind == Token::kEnd
            ? findings_.error(lexeme.offset, 1, "unexpected end of the configuration")
            : findings_.error(lexeme.offset, lexeme.length, fmt::format("unexpected '{}'", shown(lexer_.text(lexeme))));
    d.expected = std::move(expected);
    return d;
  }

  // Skips to the end of the statement: past its ';', or before what closes the block or starts a new kind of statement.
  void recover() {
    int open = 0;
    while (true) {
      switch (lexer_.peek().kind) {
        case Token::kEnd:
          return;
        case Token::kSemicolon:
          lexer_.take();
          if (open == 0) return;
          break;
        case Token::kOpenBrace:
          ++open;
          lexer_.take();
          break;
        case Token::kCloseBrace:
          if (open == 0) return;
          --open;
          lexer_.take();
          break;
        case Token::kDoubleBar:
        case Token::kCloseParen:
          if (open == 0 && nested()) return;
          lexer_.take();
          break;
        case Token::kElementclass:
        case Token::kRequire:
        case Token::kDefine:
        case Token::kProvide:
          if (open == 0) return;
          lexer_.take();
          break;
        case Token::kOpenParen:
          lexer_.take_config();
          break;
        default:
          lexer_.take();
          break;
      }
    }
  }

  std::string line_of(size_t offset) const { return fmt::format("line {}", findings_.source().place(offset).line); }

  const ClassRef* find_class(const std::string& name) const {
    for (auto it = classes_.rbegin(); it != classes_.rend(); ++it) {
      const auto found = it->find(name);
      if (found != it->end()) return &found->second;
    }
    return nullptr;
  }

  std::vector<std::string> class_names() const {
    std::vector<std::string> names = options_.known_classes;
    for (const auto& level : classes_) {
      for (const auto& [name, ref] : level) names.push_back(name);
    }
    std::sort(names.begin(), names.end());  // the maps' order must not choose between equally near names
    return names;
  }
  // Those that were declared: another unknown name is no help.
  std::vector<std::string> element_names() const {
    std::vector<std::string> names;
    for (const Element& e : scope_->elements) {
      if (!e.anonymous && !e.undeclared) names.push_back(e.name);
    }
    return names;
  }

  static void suggest(Diagnostic& d, std::string_view word, const std::vector<std::string>& names) {
    const std::string found = closest_match(word, names);
    // Any two names of one letter are near by edits; that is no hint.
    if (word.size() < 3 && (found.size() != word.size() || (found[0] | 32) != (word[0] | 32))) return;
    if (!found.empty()) d.suggestion = fmt::format("did you mean '{}'?", found);
  }

  // The class that `name` stands for here. Unknown ones are reported when the primitives are known.
  ClassRef class_ref(const std::string& name, size_t offset, size_t length) {
    if (const ClassRef* found = find_class(name)) return *found;
    if (!known_.empty() && !known_.count(name) && !is_device_class(name)) {
      if (defining_.count(name)) {
        Diagnostic& d = findings_.error(offset, length, fmt::format("elementclass '{}' uses itself", shown(name)));
        d.expected = "a class that is defined before this one";
      } else {
        unknown_.push_back({name, offset, length});
        if (unknown_.size() > kMaxUnknown) unknown_.pop_back();
      }
    }
    return {name, nullptr};
  }

  // --- statements --------------------------------------------------------------------------------------------------
  // False, and nothing taken, at a token that cannot start a statement.
  bool parse_statement() {
    const Lexeme t = lexer_.peek();
    switch (t.kind) {
      case Token::kSemicolon:
        lexer_.take();
        return true;
      case Token::kElementclass:
        parse_elementclass();
        return true;
      case Token::kRequire:
        parse_require();
        return true;
      case Token::kDefine:
        parse_define();
        return true;
      case Token::kProvide: {
        Diagnostic& d = findings_.error(t.offset, t.length, "'provide' is not supported");
        d.suggestion = "remove the statement";
        lexer_.take();
        if (lexer_.peek().kind == Token::kOpenParen) lexer_.take_config();
        return true;
      }
      case Token::kIdentifier:
      case Token::kOpenBracket:
      case Token::kOpenBrace:
      case Token::kOpenParen:
        parse_connection();
        return true;
      case Token::kArrow:
      case Token::kDoubleArrow:
        if (!nested()) {
          unexpected(t, "an element before the arrow");
          recover();
        } else {
          parse_connection();
        }
        return true;
      default:
        return false;
    }
  }

  std::optional<Lexer::Config> config_after(const char* keyword) {
    lexer_.take();
    if (lexer_.peek().kind != Token::kOpenParen) {
      unexpected(lexer_.peek(), fmt::format("{}( ... )", keyword));
      recover();
      return std::nullopt;
    }
    return lexer_.take_config();
  }

  void parse_require() {
    const auto config = config_after("require");
    if (!config) return;
    const std::string_view raw = findings_.source().text().substr(config->offset, config->length);
    for (const ConfigSlice& a : split_arguments(raw)) {
      if (a.length == 0) continue;
      const std::string_view argument = raw.substr(a.offset, a.length);
      if (std::string library; names_library(argument, &library)) {
        require_library(library, config->offset + a.offset, a.length);
        continue;
      }
      if (!provided(argument, config->offset + a.offset)) continue;
      std::string kept = strip_comments(argument);
      for (char& c : kept) {
        if (c == '\n' || c == '\r') c = ' ';
      }
      requirements_.push_back(std::move(kept));
    }
  }

  // Its text is here already, behind this statement, unless something is wrong.
  void require_library(const std::string& name, size_t offset, size_t length) {
    if (linked_.count(offset)) return;
    if (name.empty()) {
      findings_.error(offset, length, "'library' without one name").expected = "library NAME";
    } else if (!options_.library) {
      findings_.error(offset, length, "libraries cannot be read here").suggestion =
          "put the library's text into this file";
    } else {
      findings_.error(offset, length, fmt::format("library '{}' is required inside a compound", shown(name)))
          .suggestion = "write the statement outside of '{ }'";
    }
  }

  // `package NAME` or `NAME` of something that is here; else a finding. `at` is the argument's place in the text.
  bool provided(std::string_view argument, size_t at) {
    const auto words = split_words(argument);
    auto word = [&](const ConfigSlice& w) { return unquote(argument.substr(w.offset, w.length)).value_or(""); };
    const bool package = word(words[0]) == "package";
    const size_t named = package ? 1 : 0;
    const std::string known = fmt::format("{}", fmt::join(options_.provided, ", "));
    if (words.size() != named + 1) {
      const ConfigSlice& wrong = words.size() > named ? words[named + 1] : words[0];
      Diagnostic& d = findings_.error(
          at + wrong.offset, wrong.length,
          words.size() > named
              ? fmt::format("unexpected '{}' in 'require'", shown(argument.substr(wrong.offset, wrong.length)))
              : std::string("'package' without a name"));
      d.expected = fmt::format("package NAME, or NAME, with one of: {}", known);
      return false;
    }
    const std::string name = word(words[named]);
    if (std::find(options_.provided.begin(), options_.provided.end(), name) != options_.provided.end()) return true;
    Diagnostic& d = findings_.error(at + words[named].offset, words[named].length,
                                    fmt::format("this configuration requires '{}', which is not available",
                                                shown(argument.substr(words[named].offset, words[named].length))));
    d.expected = fmt::format("one of: {}", known);
    const std::string near = closest_match(name, options_.provided);
    d.suggestion = near.empty() ? std::string("remove it if the elements exist anyway: `sluice elements`")
                                : fmt::format("did you mean '{}'?", near);
    return false;
  }

  void parse_define() {
    const auto config = config_after("define");
    if (!config) return;
    const std::string_view raw = findings_.source().text().substr(config->offset, config->length);
    for (const ConfigSlice& a : split_arguments(raw)) {
      if (a.length == 0) continue;
      const std::string_view argument = raw.substr(a.offset, a.length);
      const std::vector<ConfigSlice> words = split_words(argument);
      const std::string_view name = argument.substr(words[0].offset, words[0].length);
      const bool good = name.size() > 1 && name[0] == '$' && std::all_of(name.begin() + 1, name.end(), [](char c) {
                          return isalnum(static_cast<unsigned char>(c)) || c == '_';
                        });
      const size_t at = config->offset + a.offset;
      if (!good) {
        Diagnostic& d = findings_.error(at, words[0].length, fmt::format("'{}' is not a variable", shown(name)));
        d.expected = "define($NAME VALUE, ...)";
        if (!name.empty() && name[0] != '$')
          d.suggestion = fmt::format("write ${}", shown(name.substr(0, name.find('='))));
        continue;
      }
      Define define{std::string(name.substr(1)), at + a.length, 0};
      if (words.size() > 1) {
        const ConfigSlice value = trim_config(argument, words[0].offset + words[0].length, argument.size());
        define.offset = at + value.offset;
        define.length = value.length;
      }
      const auto [it, fresh] = scope_->define_map.emplace(define.name, scope_->defines.size());
      if (!fresh) {
        Diagnostic& d = findings_.error(at, words[0].length, fmt::format("${} is defined twice", shown(define.name)));
        d.suggestion = fmt::format("the first definition is on {}", line_of(scope_->defines[it->second].offset));
        continue;
      }
      scope_->defines.push_back(std::move(define));
    }
  }

  void parse_elementclass() {
    lexer_.take();
    const Lexeme name_token = lexer_.peek();
    std::string name;
    if (name_token.kind != Token::kIdentifier) {
      unexpected(name_token, "the name of the class");
      if (name_token.kind != Token::kOpenBrace) return recover();
    } else {
      name = word(lexer_.take());
      check_name(name, name_token.offset, name_token.length, "class");
      if (const auto found = scope_->element_map.find(name);
          found != scope_->element_map.end() && !scope_->elements[static_cast<size_t>(found->second)].undeclared) {
        findings_
            .error(name_token.offset, name_token.length, fmt::format("'{}' is the name of an element", shown(name)))
            .expected = "a name for the class";
      }
    }
    const Lexeme next = lexer_.peek();
    if (next.kind == Token::kIdentifier) {
      lexer_.take();
      classes_.back()[name] = class_ref(word(next), next.offset, next.length);
    } else if (next.kind == Token::kOpenBrace) {
      const bool outermost = defining_.insert(name).second;
      ClassRef ref{{}, parse_compound(name)};
      if (outermost) defining_.erase(name);
      later_.emplace(name, name_token.offset);
      classes_.back()[name] = std::move(ref);
    } else {
      unexpected(next, "'{' or the name of a class");
      // Do not let the broken definition make its uses wrong as well.
      if (!name.empty()) classes_.back()[name] = {name, nullptr};
      known_.insert(name);
      recover();
    }
  }

  bool enter(const Lexeme& open) {
    if (depth_ < options_.max_depth) return ++depth_, true;
    findings_.error(open.offset, open.length, fmt::format("nested deeper than {} levels", options_.max_depth));
    stop();
    return false;
  }
  // Gives up: what follows cannot be understood at a bounded cost.
  void stop() {
    stopped_ = true;
    lexer_.finish();
  }

  // peek() is '{'.
  std::shared_ptr<CompoundClass> parse_compound(const std::string& name) {
    auto compound = std::make_shared<CompoundClass>();
    compound->name = name;
    compound->defined_in = scope_;
    const Lexeme open = lexer_.take();
    if (!enter(open)) return compound;
    Scope* const outer = scope_;
    std::vector<Group> outer_groups;
    outer_groups.swap(groups_);
    while (true) {
      if (lexer_.peek().kind == Token::kDots) {
        extend(compound.get(), lexer_.take());
        if (lexer_.peek().kind == Token::kCloseBrace) {
          lexer_.take();
          break;
        }
        if (lexer_.peek().kind == Token::kDoubleBar) lexer_.take();
      }
      auto scope = std::make_unique<Scope>();
      scope->parent = outer;
      scope->offset = open.offset;
      scope_ = scope.get();
      classes_.emplace_back();
      parse_formals();
      while (!stopped_) {
        const Token kind = lexer_.peek().kind;
        if (kind == Token::kCloseBrace || kind == Token::kDoubleBar || kind == Token::kEnd) break;
        if (parse_statement()) continue;
        if (kind == Token::kDots) {
          unexpected(lexer_.peek(), "a statement or '}'").suggestion = "'...' stands by itself: '|| ...'";
        } else {
          unexpected(lexer_.peek(), "a statement or '}'");
        }
        lexer_.take();
      }
      finish_scope();
      classes_.pop_back();
      compound->alternatives.push_back(std::move(scope));
      const Lexeme close = lexer_.peek();
      if (close.kind == Token::kEnd) {
        if (!stopped_) {
          Diagnostic& d = findings_.error(open.offset, open.length, "no '}' closes this '{'");
          d.expected = "a closing }";
          unclosed_brace_ = std::min(unclosed_brace_, open.offset);
        }
        break;
      }
      lexer_.take();
      if (close.kind == Token::kCloseBrace) break;
    }
    scope_ = outer;
    groups_.swap(outer_groups);
    --depth_;
    return compound;
  }

  // `...` as the last alternative: those of the class that had the name before.
  void extend(CompoundClass* compound, const Lexeme& dots) {
    if (lexer_.peek().kind != Token::kCloseBrace) {
      findings_.error(dots.offset, dots.length, "'...' is not the last alternative").expected =
          "'|| ... }' at the end of the class";
      return;
    }
    if (compound->name.empty()) {
      findings_.error(dots.offset, dots.length, "'...' in a compound without a name").suggestion =
          "only an elementclass can extend one of its name";
      return;
    }
    if (const ClassRef* before = find_class(compound->name)) {
      compound->extends = *before;
      compound->extensions = before->compound ? before->compound->extensions + 1 : 1;
      if (compound->extensions > options_.max_depth) {
        findings_.error(dots.offset, dots.length,
                        fmt::format("'{}' is extended more than {} times", shown(compound->name), options_.max_depth));
        compound->extends.reset();
      }
    } else if (known_.count(compound->name) || known_.empty()) {
      compound->extends = ClassRef{compound->name, nullptr};
    } else {
      Diagnostic& d = findings_.error(dots.offset, dots.length,
                                      fmt::format("there is no class '{}' to extend", shown(compound->name)));
      d.expected = "a class of that name that is defined before this one";
    }
  }

  void parse_formals() {
    // `$a, KEY $b |`. An identifier may also start a statement: it is a keyword only if a variable follows.
    while (true) {
      Lexeme t = lexer_.peek();
      Formal formal;
      if (t.kind == Token::kBar && scope_->formals.empty()) {
        lexer_.take();
        return;
      }
      if (t.kind == Token::kIdentifier) {
        const Lexer before = lexer_;
        const Lexeme keyword = lexer_.take();
        if (lexer_.peek().kind != Token::kVariable) {
          if (scope_->formals.empty()) {
            lexer_ = before;
            return;
          }
          unexpected(lexer_.peek(), "a variable: $NAME");
          return;
        }
        formal.keyword = word(keyword);
        t = lexer_.peek();
      } else if (t.kind != Token::kVariable) {
        if (!scope_->formals.empty()) unexpected(t, "a variable: $NAME");
        return;
      }
      lexer_.take();
      formal.name = word(t).substr(1);
      if (formal.name.empty() || formal.name[0] == '{') {
        findings_.error(t.offset, t.length, fmt::format("'{}' is not a variable", shown(lexer_.text(t)))).expected =
            "$NAME";
      }
      for (const Formal& f : scope_->formals) {
        if (f.name == formal.name) {
          findings_.error(t.offset, t.length, fmt::format("${} is given twice in the list", shown(formal.name)));
        }
        if (f.keyword == "__REST__") {
          findings_.error(t.offset, t.length, "nothing can follow __REST__").suggestion = "put __REST__ last";
        }
      }
      if (scope_->formals.size() >= 1024) {
        findings_.error(t.offset, t.length, "more than 1024 variables");
        stop();
        return;
      }
      scope_->formals.push_back(std::move(formal));
      const Lexeme separator = lexer_.peek();
      if (separator.kind == Token::kBar) {
        lexer_.take();
        return;
      }
      if (separator.kind != Token::kComma) {
        unexpected(separator, "',' or '|' after a variable");
        return;
      }
      lexer_.take();
    }
  }

  // --- connections -------------------------------------------------------------------------------------------------
  struct Group {
    int element = 0;  // in scope_
    uint32_t inputs = 0;
    uint32_t outputs = 0;
    std::vector<bool> used_inputs, used_outputs;
  };

  PortList parse_ports() {
    PortList list;
    const Lexeme open = lexer_.take();
    list.given = true;
    list.offset = open.offset;
    bool range = false;
    bool good = true;
    while (true) {
      Lexeme t = lexer_.peek();
      if (t.kind == Token::kCloseBracket && !range) {
        if (list.ports.empty()) list.ports.push_back(0);
        list.expandable = true;
        break;
      }
      if (t.kind != Token::kIdentifier) {
        unexpected(t, "a port number");
        good = false;
        break;
      }
      const std::string_view text = lexer_.text(t);
      uint32_t port = 0;
      const bool digits = text.find_first_not_of("0123456789") == std::string_view::npos;
      if (!digits) {
        findings_.error(t.offset, t.length, fmt::format("port '{}' is not a number", shown(text))).expected =
            fmt::format("a number from 0 to {}", kMaxClickPort);
      } else {
        for (const char c : text) port = std::min(port * 10 + static_cast<uint32_t>(c - '0'), kMaxClickPort + 1);
        if (port > kMaxClickPort) {
          findings_.error(t.offset, t.length, fmt::format("port {} is too large", shown(text))).expected =
              fmt::format("a number from 0 to {}", kMaxClickPort);
          port = 0;
        }
      }
      if (range) {
        const uint32_t first = list.ports.back();
        if (port < first) {
          findings_.error(t.offset, t.length, fmt::format("port range {}-{} is empty", first, port)).expected =
              "LOW-HIGH with LOW <= HIGH";
        }
        for (uint32_t p = first + 1; p <= port; ++p) list.ports.push_back(p);
      } else {
        list.ports.push_back(port);
      }
      if (list.ports.size() > kMaxClickPort + 1) {
        findings_.error(t.offset, t.length, fmt::format("more than {} ports in one list", kMaxClickPort + 1));
        good = false;
        break;
      }
      lexer_.take();
      const bool after_range = range;
      range = false;
      t = lexer_.peek();
      if (t.kind == Token::kCloseBracket) break;
      if (t.kind == Token::kDash && !after_range) {
        range = true;
      } else if (t.kind != Token::kComma) {
        unexpected(t, "',' or ']' in a list of ports");
        good = false;
        break;
      }
      lexer_.take();
    }
    if (!good) {
      // Find the bracket on this statement; leave what is not ours.
      while (true) {
        const Token k = lexer_.peek().kind;
        if (k == Token::kComma || k == Token::kDash || k == Token::kIdentifier || k == Token::kVariable ||
            k == Token::kUnknown) {
          lexer_.take();
        } else {
          break;
        }
      }
      if (list.ports.empty()) list.ports.push_back(0);
    }
    const Lexeme close = lexer_.peek();
    if (close.kind == Token::kCloseBracket) lexer_.take();
    count_ports(list.ports.size(), open);
    list.length = close.offset + close.length - open.offset;
    return list;
  }

  // Lists of ports are short to write and long to hold.
  void count_ports(size_t ports, const Lexeme& at) {
    port_count_ += ports;
    if (port_count_ <= 2 * options_.max_connections || stopped_) return;
    findings_.error(at.offset, at.length, fmt::format("more than {} ports in lists", 2 * options_.max_connections));
    stop();
  }

  bool check_name(const std::string& name, size_t offset, size_t length, const char* what) {
    if (name.size() > kMaxNameBytes) {
      findings_.error(offset, length, fmt::format("the name is longer than {} bytes", kMaxNameBytes));
      return false;
    }
    if (!name.empty() && has_all_digit_component(name)) {
      findings_.error(offset, length, fmt::format("{} name '{}' has a component of digits only", what, shown(name)))
          .expected = "a name with a letter, '_' or '@' in each component";
      return false;
    }
    return true;
  }

  // One element of a comma list. False: there was none (and nothing but ports, already reported, was taken).
  bool parse_item(bool first_set, bool list_empty, Item* item) {
    if (lexer_.peek().kind == Token::kOpenBracket) item->in = parse_ports();
    const Lexeme t = lexer_.peek();
    item->name_offset = t.offset;
    item->name_length = t.length;
    if (t.kind == Token::kIdentifier) {
      lexer_.take();
      item->name = word(t);
    } else if (t.kind == Token::kOpenBrace) {
      item->type = ClassRef{{}, parse_compound({})};
      item->type_offset = t.offset;
      item->type_length = t.length;
      item->has_type = true;
      item->in_place = true;
      item->bare = false;
    } else if (t.kind == Token::kOpenParen) {
      parse_group(item);
      item->bare = false;
    } else {
      bool implicit = false;
      if (nested()) {
        if (is_arrow(t.kind)) {
          implicit = first_set && (item->in.given || list_empty);
        } else if (t.kind == Token::kComma) {
          implicit = item->in.given;
        } else if (t.kind != Token::kDoubleColon) {
          implicit = !first_set && (item->in.given || list_empty);
        }
      }
      if (!implicit) {
        if (item->in.given) {
          findings_.error(item->in.offset, item->in.length, "these ports belong to no element").expected =
              "an element beside the ports";
        }
        return false;
      }
      item->implicit = true;
      item->bare = false;
      item->name = first_set ? "input" : "output";
      if (first_set) std::swap(item->in, item->out);
      return true;
    }
    const bool one_colon = lexer_.peek().kind == Token::kUnknown && lexer_.text(lexer_.peek()) == ":";
    if (one_colon) unexpected(lexer_.peek(), "'::'").suggestion = "declarations are written 'NAME :: CLASS'";
    if (lexer_.peek().kind == Token::kDoubleColon || one_colon) {
      const Lexeme colons = lexer_.take();
      const Lexeme type = lexer_.peek();
      item->bare = false;
      if (item->in_place || item->group) {
        findings_.error(colons.offset, colons.length, "a class follows what is not a name").expected = "NAME :: CLASS";
      }
      if (type.kind == Token::kIdentifier) {
        lexer_.take();
        if (!item->in_place && !item->group) item->type = class_ref(word(type), type.offset, type.length);
        item->has_type = true;
      } else if (type.kind == Token::kOpenBrace) {
        ClassRef ref{{}, parse_compound({})};
        if (!item->in_place && !item->group) item->type = std::move(ref);
        item->has_type = true;
      } else {
        unexpected(type, "the class of the element");
        item->type.primitive = "Idle";  // the name is declared, so that its uses are no findings
        item->has_type = true;
      }
      item->type_offset = type.offset;
      item->type_length = type.length;
    }
    if (lexer_.peek().kind == Token::kOpenParen) {
      const Lexeme open = lexer_.peek();
      item->config = lexer_.take_config();
      item->bare = false;
      if (item->group) {
        findings_.error(open.offset, 1, "a group of elements takes no configuration");
      }
    }
    if (lexer_.peek().kind == Token::kOpenBracket) item->out = parse_ports();
    return true;
  }

  // peek() is the '(' of a group of elements: statements of the same scope between parentheses.
  void parse_group(Item* item) {
    const Lexeme open = lexer_.take();
    item->group = true;
    if (!enter(open)) {
      item->failed = true;
      return;
    }
    Group group;
    Element e;
    e.group = true;
    e.anonymous = true;
    e.name_offset = e.class_offset = open.offset;
    e.name_length = e.class_length = open.length;
    group.element = add_element(std::move(e));
    groups_.push_back(std::move(group));
    while (!stopped_) {
      const Token kind = lexer_.peek().kind;
      if (kind == Token::kCloseParen || kind == Token::kEnd || kind == Token::kCloseBrace ||
          kind == Token::kDoubleBar) {
        break;
      }
      if (parse_statement()) continue;
      unexpected(lexer_.peek(), "a statement or ')'");
      lexer_.take();
    }
    if (lexer_.peek().kind == Token::kCloseParen) {
      lexer_.take();
    } else if (!stopped_) {
      findings_.error(open.offset, open.length, "no ')' closes this '('").expected = "a closing )";
    }
    const Group done = std::move(groups_.back());
    groups_.pop_back();
    --depth_;
    item->element = done.element;
    auto imply = [](PortList* list, uint32_t count) {
      if (list->given) return;
      for (uint32_t p = 0; p < count; ++p) list->ports.push_back(p);
    };
    check_gaps(done.used_inputs, open, "input");
    check_gaps(done.used_outputs, open, "output");
    imply(&item->in, done.inputs);
    count_ports(done.inputs + done.outputs, open);
    // Ports after the group override these in parse_item.
    for (uint32_t p = 0; p < done.outputs; ++p) item->out.ports.push_back(p);
  }

  void check_gaps(const std::vector<bool>& used, const Lexeme& open, const char* what) {
    for (size_t p = 0; p < used.size(); ++p) {
      if (used[p]) continue;
      Diagnostic& d = findings_.error(open.offset, open.length, fmt::format("{} {} is not connected inside", what, p));
      d.expected = fmt::format("all of {} 0 to {}, because {} is used", what, used.size() - 1, used.size() - 1);
      return;
    }
  }

  int add_element(Element e) {
    const int index = static_cast<int>(scope_->elements.size());
    if (!e.anonymous) scope_->element_map.emplace(e.name, index);
    // Sources may have more elements than an expanded graph only if none is used: the same limit serves.
    if (++element_count_ > options_.max_elements && !stopped_) {
      findings_.error(e.name_offset, e.name_length, fmt::format("more than {} elements", options_.max_elements));
      stop();
    }
    scope_->elements.push_back(std::move(e));
    return index;
  }

  void parse_connection() {
    std::vector<Item> last;
    Lexeme arrow;
    bool first = true;
    while (true) {
      std::vector<Item> items;
      bool implicit = false;
      while (true) {
        Item item;
        if (!parse_item(first, items.empty(), &item)) {
          if (items.empty()) {
            unexpected(lexer_.peek(), first ? "an element" : "an element after the arrow");
            recover();
            return;
          }
          break;  // a trailing comma
        }
        implicit |= item.implicit;
        items.push_back(std::move(item));
        if (stopped_) return;
        if (lexer_.peek().kind != Token::kComma) break;
        lexer_.take();
      }
      const Lexeme next = lexer_.peek();
      if (!first && implicit && is_arrow(next.kind)) {
        findings_.error(next.offset, next.length, "an arrow follows the end of the chain").expected =
            "an element between the arrows";
      }
      if (first && !is_arrow(next.kind)) spread_declaration(&items);
      for (Item& item : items) resolve(&item);
      if (first) {
        for (const Item& item : items) {
          if (item.in.given && !item.implicit) {
            findings_.error(item.in.offset, item.in.length, "input ports at the start of a chain").expected =
                "an arrow before the ports";
          }
        }
      } else {
        connect(last, items, arrow);
      }
      if (!is_arrow(next.kind)) {
        for (const Item& item : items) {
          if (item.out.given) {
            findings_.error(item.out.offset, item.out.length, "output ports at the end of a chain").expected =
                "an arrow after the ports";
          }
        }
        end_of_statement();
        return;
      }
      arrow = lexer_.take();
      last = std::move(items);
      first = false;
    }
  }

  void end_of_statement() {
    const Lexeme t = lexer_.peek();
    switch (t.kind) {
      case Token::kSemicolon:
        lexer_.take();
        return;
      case Token::kEnd:
      case Token::kIdentifier:
      case Token::kOpenBrace:
      case Token::kCloseBrace:
      case Token::kOpenBracket:
      case Token::kDoubleBar:
      case Token::kElementclass:
      case Token::kRequire:
      case Token::kProvide:
      case Token::kDefine:
        return;
      case Token::kCloseParen:
        if (nested()) return;
        break;
      default:
        break;
    }
    if (stopped_) return;
    Diagnostic& d = unexpected(t, "'->', '=>', '::' or ';'");
    const std::string_view text = lexer_.text(t);
    if (t.kind == Token::kDash || (t.kind == Token::kUnknown && (text[0] == '=' || text[0] == '>'))) {
      d.suggestion = "connections are written '->'";
    }
    recover();
  }

  // `a, b :: K(c);` alone declares all with the last one's class and configuration.
  static void spread_declaration(std::vector<Item>* items) {
    if (items->size() < 2) return;
    Item& last = items->back();
    if (!last.has_type || last.in_place || last.group) return;
    for (const Item& item : *items) {
      if (item.in.given || item.out.given || item.implicit) return;
      if (&item != &last && !item.bare) return;
    }
    for (Item& item : *items) {
      if (&item == &last) continue;
      item.bare = false;
      item.has_type = true;
      item.type = last.type;
      item.type_offset = last.type_offset;
      item.type_length = last.type_length;
      item.config = last.config;
    }
  }

  // A name with its class: `e`, unless its use came before.
  void declare(Item* item, Element e) {
    const auto declared = scope_->element_map.find(item->name);
    if (declared != scope_->element_map.end()) {
      Element& first = scope_->elements[static_cast<size_t>(declared->second)];
      const size_t index = first.undeclared_index;
      if (!first.undeclared) {
        findings_
            .error(item->name_offset, item->name_length,
                   fmt::format("element '{}' is declared twice", shown(item->name)))
            .suggestion = fmt::format("the first declaration is on {}", line_of(first.name_offset));
      } else if (index < undeclared_.size() && undeclared_[index].offset < item->name_offset) {
        undeclared_[index].suggestion =
            fmt::format("it is declared later, on {}; declare it before its use", line_of(item->name_offset));
      }
      first.undeclared = false;
      item->element = declared->second;
      return;
    }
    if (find_class(item->name) != nullptr || known_.count(item->name)) {
      findings_
          .error(item->name_offset, item->name_length, fmt::format("'{}' is the name of a class", shown(item->name)))
          .expected = "a name for the element";
    }
    if (!check_name(item->name, item->name_offset, item->name_length, "element")) {
      item->failed = true;
      return;
    }
    e.name = item->name;
    item->element = add_element(std::move(e));
  }

  // A name that nothing has: an element that is declared nowhere before.
  void use_undeclared(Item* item, Element e) {
    std::vector<std::string> names = element_names();
    const std::vector<std::string> classes = class_names();
    names.insert(names.end(), classes.begin(), classes.end());
    Undeclared u{item->name, item->name_offset, item->name_length, {}};
    Diagnostic hint;
    suggest(hint, item->name, names);
    u.suggestion = hint.suggestion;
    if (u.suggestion.empty() && !nested() && (item->name == "input" || item->name == "output")) {
      u.suggestion = "input and output exist inside { } only";
    }
    if (undeclared_.size() < kMaxUnknown) {
      e.undeclared_index = undeclared_.size();
      undeclared_.push_back(std::move(u));
    }
    e.undeclared = true;
    // One finding per name: later uses mean the same element.
    e.name = item->name;
    e.type.primitive = "Idle";
    item->element = add_element(std::move(e));
  }

  // Turns the name of an item into an element of the scope or a pseudo-element.
  void resolve(Item* item) {
    if (item->failed || item->group) return;
    if (item->implicit || (nested() && !item->in_place && (item->name == "input" || item->name == "output"))) {
      if (item->has_type) {
        findings_
            .error(item->name_offset, item->name_length, fmt::format("'{}' is reserved inside a compound", item->name))
            .expected = "another name";
      } else if (item->config) {
        findings_.error(item->name_offset, item->name_length, fmt::format("'{}' takes no configuration", item->name));
      }
      item->inner = true;
      item->element = groups_.empty() ? Endpoint::kOwner : groups_.back().element;
      return;
    }
    Element e;
    e.name_offset = item->name_offset;
    e.name_length = item->name_length;
    e.class_offset = item->has_type ? item->type_offset : item->name_offset;
    e.class_length = item->has_type ? item->type_length : item->name_length;
    if (item->config) {
      e.config_offset = item->config->offset;
      e.config_length = item->config->length;
    } else {
      e.config_offset = e.class_offset + e.class_length;
    }
    e.type = item->type;
    if (item->in_place) {
      e.anonymous = true;
      item->element = add_element(std::move(e));
      return;
    }
    const auto declared = scope_->element_map.find(item->name);
    if (item->has_type) {
      declare(item, std::move(e));
      return;
    }
    if (declared != scope_->element_map.end()) {
      if (item->config) {
        Diagnostic& d = findings_.error(item->name_offset, item->name_length,
                                        fmt::format("element '{}' is declared already", shown(item->name)));
        d.expected = "its name alone";
        d.suggestion = fmt::format("its configuration belongs to its declaration on {}",
                                   line_of(scope_->elements[static_cast<size_t>(declared->second)].name_offset));
      }
      item->element = declared->second;
      return;
    }
    // Not an element: a class, unless it can be none.
    const bool known = find_class(item->name) != nullptr || known_.count(item->name) != 0;
    const bool capital = item->name[0] >= 'A' && item->name[0] <= 'Z';
    if (!known && !item->config && (!known_.empty() ? !defining_.count(item->name) : !capital)) {
      use_undeclared(item, std::move(e));
      return;
    }
    if (!check_name(item->name, item->name_offset, item->name_length, "class")) {
      item->failed = true;
      return;
    }
    e.type = class_ref(item->name, item->name_offset, item->name_length);
    e.name = item->name;
    e.anonymous = true;
    item->element = add_element(std::move(e));
  }

  // The endpoints of a set of items on one side of an arrow, `extra` more for the expandable one.
  struct Flat {
    Endpoint end;
    const Item* item;
  };
  static std::vector<Flat> flatten(const std::vector<Item>& items, bool output, const Item* expandable, size_t extra) {
    std::vector<Flat> out;
    for (const Item& item : items) {
      const PortList& list = output ? item.out : item.in;
      std::vector<uint32_t> ports = list.ports;
      if (ports.empty()) ports.push_back(0);
      if (&item == expandable) {
        for (size_t k = 0; k < extra; ++k) ports.push_back(ports.back() + 1);
      }
      for (const uint32_t p : ports) out.push_back({{item.element, item.inner, p}, &item});
    }
    return out;
  }

  void connect(const std::vector<Item>& from, const std::vector<Item>& to, const Lexeme& arrow) {
    for (const auto* side : {&from, &to}) {
      for (const Item& item : *side) {
        if (item.failed) return;
      }
    }
    const bool lists = arrow.kind == Token::kDoubleArrow;
    size_t count[2] = {0, 0};
    const Item* expandable[2] = {nullptr, nullptr};
    int expandables = 0;
    for (int side = 0; side < 2; ++side) {
      for (const Item& item : side == 0 ? from : to) {
        const PortList& list = side == 0 ? item.out : item.in;
        count[side] += std::max<size_t>(1, list.ports.size());
        if (list.expandable) {
          expandable[side] = &item;
          ++expandables;
        }
      }
    }
    if (expandables > 1) {
      findings_.error(arrow.offset, arrow.length, "more than one open list of ports at one arrow").expected =
          "at most one list that ends in a comma";
      return;
    }
    for (int side = 0; side < 2; ++side) {
      // An element without ports beside `=>` takes as many as the other side has.
      const std::vector<Item>& items = side == 0 ? from : to;
      const PortList& list = side == 0 ? items[0].out : items[0].in;
      if (lists && count[side] == 1 && count[1 - side] > 1 && !list.given && list.ports.empty()) {
        expandable[side] = &items[0];
      }
    }
    auto missing = [&](int side) {
      return expandable[side] != nullptr && count[1 - side] > count[side] ? count[1 - side] - count[side] : 0;
    };
    const std::vector<Flat> a = flatten(from, true, expandable[0], missing(0));
    const std::vector<Flat> b = flatten(to, false, expandable[1], missing(1));
    for (const auto* side : {&a, &b}) {
      for (const Flat& f : *side) {
        if (f.end.port > kMaxClickPort) {
          findings_.error(arrow.offset, arrow.length, fmt::format("port {} is too large", f.end.port));
          return;
        }
      }
    }
    if (a.size() > 1 && b.size() > 1) {
      if (!lists) {
        Diagnostic& d = findings_.error(arrow.offset, arrow.length,
                                        fmt::format("'->' cannot join {} outputs to {} inputs", a.size(), b.size()));
        d.expected = "one output or one input";
        d.suggestion = "'=>' joins them one by one";
        return;
      }
      if (a.size() != b.size()) {
        Diagnostic& d = findings_.error(arrow.offset, arrow.length,
                                        fmt::format("'=>' joins {} outputs to {} inputs", a.size(), b.size()));
        d.expected = "as many outputs as inputs";
        return;
      }
      for (size_t i = 0; i < a.size(); ++i) add_edge(a[i], b[i], arrow);
      return;
    }
    for (const Flat& f : a) {
      for (const Flat& t : b) add_edge(f, t, arrow);
    }
  }

  void add_edge(const Flat& from, const Flat& to, const Lexeme& arrow) {
    if (stopped_) return;
    if (from.end.inner && from.item->name == "output") {
      findings_.error(from.item->name_offset, from.item->name_length, "'output' has no outputs").suggestion =
          "connect to it: ... -> output";
      return;
    }
    if (to.end.inner && to.item->name == "input") {
      findings_.error(to.item->name_offset, to.item->name_length, "'input' has no inputs").suggestion =
          "connect from it: input -> ...";
      return;
    }
    if (++edge_count_ > options_.max_connections) {
      findings_.error(arrow.offset, arrow.length, fmt::format("more than {} connections", options_.max_connections));
      stop();
      return;
    }
    note_use(from.end, true);
    note_use(to.end, false);
    scope_->edges.push_back({from.end, to.end, arrow.offset});
  }

  static void mark(std::vector<bool>* used, uint32_t port) {
    if (used->size() <= port) used->resize(port + 1);
    (*used)[port] = true;
  }

  void note_use(const Endpoint& end, bool as_source) {
    if (!end.inner) {
      Element& e = scope_->elements[static_cast<size_t>(end.element)];
      uint32_t& used = as_source ? e.outputs_used : e.inputs_used;
      used = std::max(used, end.port + 1);
      return;
    }
    if (end.element == Endpoint::kOwner) {
      uint32_t& count = as_source ? scope_->inputs : scope_->outputs;
      count = std::max(count, end.port + 1);
      return;
    }
    for (Group& g : groups_) {
      if (g.element != end.element) continue;
      uint32_t& count = as_source ? g.inputs : g.outputs;
      count = std::max(count, end.port + 1);
      mark(as_source ? &g.used_inputs : &g.used_outputs, end.port);
    }
  }

  // Names what is anonymous; reports the gaps in the ports of a compound.
  void finish_scope() {
    for (size_t i = 0; i < scope_->elements.size(); ++i) {
      Element& e = scope_->elements[i];
      if (!e.anonymous) continue;
      const std::string base = e.name;  // the class; empty for a group or a compound written in place
      size_t number = i + 1;
      std::string name;
      do {
        name = fmt::format("{}@{}", base, number++);
      } while (scope_->element_map.count(name));
      e.name = name;
      scope_->element_map.emplace(std::move(name), static_cast<int>(i));
    }
    if (scope_->parent != nullptr) {
      std::vector<bool> used_inputs, used_outputs;
      for (const Edge& edge : scope_->edges) {
        if (edge.from.inner && edge.from.element == Endpoint::kOwner) mark(&used_inputs, edge.from.port);
        if (edge.to.inner && edge.to.element == Endpoint::kOwner) mark(&used_outputs, edge.to.port);
      }
      const Lexeme open{Token::kOpenBrace, scope_->offset, 1};
      check_gaps(used_inputs, open, "input");
      check_gaps(used_outputs, open, "output");
    }
    // Classes that were used but are not known: perhaps they are defined later.
    for (const Unknown& u : unknown_) {
      const auto later = later_.find(u.name);
      if (scope_->parent != nullptr) break;
      Diagnostic& d = findings_.error(u.offset, u.length, fmt::format("unknown element class '{}'", shown(u.name)));
      if (later != later_.end() && later->second > u.offset) {
        d.suggestion = fmt::format("it is defined later, on {}; define it before its use", line_of(later->second));
        continue;
      }
      suggest(d, u.name, class_names());
    }
  }

  struct Undeclared {
    std::string name;
    size_t offset;
    size_t length;
    std::string suggestion;
  };
  // Names that no declaration came for. Held back to the end, because what follows explains some of them.
  void report_undeclared() {
    for (const Undeclared& u : undeclared_) {
      if (u.offset > unclosed_brace_) continue;  // perhaps it is declared outside of the brace that is not closed
      Diagnostic& d = findings_.error(u.offset, u.length, fmt::format("element '{}' is not declared", shown(u.name)));
      d.expected = "an element that is declared before, or a class";
      d.suggestion = u.suggestion;
      const auto later = later_.find(u.name);
      if (later != later_.end() && later->second > u.offset) {
        d.suggestion = fmt::format("it is defined later, on {}; define it before its use", line_of(later->second));
      }
    }
  }

  struct Unknown {
    std::string name;
    size_t offset;
    size_t length;
  };
  static constexpr size_t kMaxUnknown = 256;

  Findings& findings_;
  const ParseOptions& options_;
  const std::unordered_set<size_t>& linked_;
  Lexer lexer_;
  Scope* scope_ = nullptr;
  std::vector<std::unordered_map<std::string, ClassRef>> classes_;
  std::unordered_set<std::string> known_;
  std::unordered_set<std::string> defining_;       // classes whose body is open
  std::unordered_map<std::string, size_t> later_;  // every compound class that was defined, and where
  std::vector<Unknown> unknown_;
  std::vector<Undeclared> undeclared_;
  size_t unclosed_brace_ = SIZE_MAX;
  std::vector<Group> groups_;  // open groups of scope_
  std::vector<std::string> requirements_;
  uint32_t depth_ = 0;
  size_t element_count_ = 0;
  size_t edge_count_ = 0;
  size_t port_count_ = 0;
  bool stopped_ = false;
};

}  // namespace

std::string shown(std::string_view text) {
  std::string out(text.substr(0, 60));
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) c = '?';
  }
  if (text.size() > 60) out += "...";
  return out;
}

Tree parse_tree(Findings& findings, const ParseOptions& options, const std::unordered_set<size_t>& linked) {
  return Parser(findings, options, linked).parse();
}

}  // namespace sluice::click
