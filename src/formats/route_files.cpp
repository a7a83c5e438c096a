#include "formats/route_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "formats/file_kind.h"
#include "tables/image.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxDumpBytes = uint64_t{1} << 36;

constexpr std::string_view kSource = ",source=", kPreference = ",preference=", kPeer = ",peer=";

// The option that stands at a place of a file's name, or nothing.
std::string_view option_at(const std::string& text, size_t at) {
  for (const std::string_view option : {kSource, kPreference, kPeer}) {
    if (text.compare(at, option.size(), option) == 0) return option;
  }
  return {};
}

// Where a file's path ends.
size_t path_end(const std::string& text) {
  return std::min({text.find(kSource), text.find(kPreference), text.find(kPeer), text.size()});
}

// What the files of one source say.
struct Part {
  std::string source;
  uint8_t preference = 0;
  Rib rib;
  std::vector<RankedRoute> ranked;
  std::vector<RouteNote> notes;
};

// The lines of a text that one source says.
struct Section {
  std::string source;
  uint8_t preference = 0;
  size_t begin = 0, end = 0;  // in the text
  uint32_t line = 0;          // lines before it
};

// A text by its lines `source NAME [preference N]`. Errors: every one of these that is wrong.
Result<std::vector<Section>> split_sections(std::string_view text, const std::string& file, const RouteFile& named) {
  constexpr std::string_view kWord = "source", kBlanks = " \t\r,";
  std::vector<Section> all = {
      {named.source, named.preference.value_or(default_preference(named.source)), 0, text.size(), 0}};
  Diagnostics findings(file, text);
  size_t counted = 0;
  uint32_t line = 0;
  for (size_t at = text.find(kWord); at != std::string_view::npos; at = text.find(kWord, at + 1)) {
    const size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1, end = std::min(text.find('\n', at), text.size());
    size_t place = at + kWord.size();
    if (text.substr(begin, at - begin).find_first_not_of(kBlanks) != std::string_view::npos ||
        (place < end && kBlanks.find(text[place]) == std::string_view::npos && text[place] != '#'))
      continue;
    std::vector<std::pair<size_t, std::string_view>> words;
    for (;;) {
      place = std::min(text.find_first_not_of(kBlanks, place), end);
      if (place >= end || text[place] == '#') break;
      const size_t stop = std::min(text.find_first_of(" \t\r,\n", place), end);
      words.emplace_back(place, text.substr(place, stop - place));
      place = stop;
    }
    line += static_cast<uint32_t>(
        std::count(text.begin() + static_cast<ptrdiff_t>(counted), text.begin() + static_cast<ptrdiff_t>(end), '\n'));
    counted = end;
    const auto wrong = [&](size_t from, size_t bytes, std::string what) {
      findings.error_at(from, std::max<size_t>(1, bytes), std::move(what)).expected = "source NAME [preference N]";
    };
    unsigned preference = 0;
    if (words.empty() || words[0].second.size() > 64) {
      wrong(at, kWord.size(), "a source of routes has a name of 1 to 64 bytes");
      continue;
    }
    if (words.size() > 1) {
      const std::string_view n = words.size() > 2 ? words[2].second : std::string_view();
      const auto [stop, code] = std::from_chars(n.data(), n.data() + n.size(), preference);
      const bool number = code == std::errc() && stop == n.data() + n.size() && preference <= 255;
      if (words[1].second != "preference" || !number || words.size() > 3) {
        const auto& [from, word] = words[words[1].second != "preference" ? 1 : words.size() > 3 ? 3 : words.size() - 1];
        wrong(from, word.size(), fmt::format("'{}' is not a preference of 0 (best) to 255", word));
        continue;
      }
    } else {
      preference = default_preference(words[0].second);
    }
    all.back().end = begin;
    all.push_back({std::string(words[0].second), static_cast<uint8_t>(preference), end, text.size(), line});
  }
  if (!findings.ok()) return findings.to_error();
  return all;
}

// `mrt`: whether candidates are wanted, and which; null: the best routes alone.
Result<RouteReport> read_one(const std::string& text, std::vector<Part>& parts, const MrtOptions* mrt,
                             InputSet* inputs) {
  auto file = parse_route_file(text);
  if (!file) return std::move(file).error();
  auto input = take_input(inputs, file->path);
  if (!input) return std::move(input).error();
  auto image = Image::is_next(*input);
  if (!image) return std::move(image).error();
  if (*image) {
    return Error(fmt::format("{} is a compiled image, not a route file", input->name()),
                 "give the route files that it was compiled from");
  }
  auto start = input->peek(kMrtStart);
  if (!start) return std::move(start).error();
  if (start->empty()) return empty_table(input->name());
  const bool is_mrt = looks_like_mrt(*start);
  if (file->source.empty()) file->source = is_mrt ? "bgp" : "static";
  const uint8_t preference = file->preference.value_or(default_preference(file->source));
  if (file->peer && !is_mrt)
    return Error(fmt::format("{}: text routes have no peers", input->name()), "leave peer= out, or give an MRT file");
  // Files of one source that follow each other share a Rib: most tables have no other, and need no more than that. Not
  // where ranked paths are kept beside it, as a later file counts before an earlier one.
  const auto part_of = [&](const std::string& source, uint8_t of_preference) -> Part& {
    const bool shared = !parts.empty() && parts.back().source == source && parts.back().preference == of_preference &&
                        parts.back().notes.empty() && (!is_mrt || mrt == nullptr);
    if (!shared) parts.push_back({source, of_preference, {}, {}, {}});
    return parts.back();
  };
  if (is_mrt) {
    Part& part = part_of(file->source, preference);
    MrtOptions options = mrt != nullptr ? *mrt : MrtOptions();
    options.peer = file->peer;
    MrtPaths paths;
    input->set_limit(kMaxDumpBytes);
    auto report = parse_mrt(*input, part.rib, options, mrt != nullptr ? &paths : nullptr);
    part.ranked = std::move(paths.routes);
    part.notes = std::move(paths.notes);
    return report;
  }
  auto routes = input->text(kMaxTextBytes);
  if (!routes) return std::move(routes).error();
  auto sections = split_sections(*routes, input->name(), *file);
  if (!sections) return std::move(sections).error();
  RouteReport sum;
  Error all;
  for (const Section& section : *sections) {
    Part& part = part_of(section.source, section.preference);
    const std::string_view lines = std::string_view(*routes).substr(section.begin, section.end - section.begin);
    auto one = parse_routes(lines, input->name(), part.rib, &part.ranked);
    if (!one) {
      Error error = std::move(one).error();
      for (Diagnostic& d : error.diagnostics) d.line += section.line;
      if (all.message.empty()) {
        all = std::move(error);
      } else {
        all.diagnostics.insert(all.diagnostics.end(), error.diagnostics.begin(), error.diagnostics.end());
        all.message = fmt::format("{} errors in {}", all.diagnostics.size(), input->name());
      }
      continue;
    }
    sum.routes4 += one->routes4;
    sum.routes6 += one->routes6;
    sum.skipped += one->skipped;
    for (Diagnostic& d : one->warnings) {
      d.line += section.line;
      if (sum.warnings.size() < Diagnostics::kLimit) sum.warnings.push_back(std::move(d));
    }
  }
  if (!all.message.empty()) {
    if (auto other = other_kind(*routes, input->name(), KindWanted::kRoutes)) return std::move(*other);
    return all;
  }
  return sum;
}

Result<std::vector<Part>> read_parts(const std::vector<std::string>& files, RouteReport* report, const MrtOptions* mrt,
                                     InputSet* inputs) {
  std::vector<Part> parts;
  RouteReport sum;
  Error all;
  size_t failed = 0;
  for (const std::string& file : files) {
    auto one = read_one(file, parts, mrt, inputs);
    if (!one) {
      Error error = std::move(one).error();
      if (++failed == 1) {
        all = std::move(error);
        continue;
      }
      all.system &= error.system;
      // A file's own sentence stays as a finding where it has no located ones.
      if (error.diagnostics.empty()) {
        Diagnostic d;
        d.file = path_of_route_file(file);
        d.message = std::move(error.message);
        error.diagnostics.push_back(std::move(d));
      }
      for (Diagnostic& d : error.diagnostics) all.diagnostics.push_back(std::move(d));
      continue;
    }
    sum.routes4 += one->routes4;
    sum.routes6 += one->routes6;
    sum.skipped += one->skipped;
    for (Diagnostic& d : one->warnings) {
      if (sum.warnings.size() < Diagnostics::kLimit) sum.warnings.push_back(std::move(d));
    }
  }
  if (failed > 1)
    all.message = fmt::format("{} of {} route files have errors; the first: {}", failed, files.size(), all.message);
  if (failed > 0) return all;
  if (report != nullptr) *report = std::move(sum);
  for (Part& part : parts) part.rib.settle();
  return parts;
}

Result<SourcedRib> join(const std::vector<Part>& parts, const NextHopIds& ids = {}) {
  SourcedRib rib;
  rib.next_hops() = ids;
  for (const Part& part : parts) {
    const uint8_t source = rib.source(part.source);
    if (source == 0) return Error(fmt::format("more than {} sources of routes", SourcedRib::kMaxSources));
    if (!rib.add_all(part.rib, source, part.preference)) {
      if (ids.count() != 0) return join(parts);
      return Error(fmt::format("more than {} different next hops", Rib::kMaxNextHops));
    }
    std::vector<uint32_t> notes;
    for (const RouteNote& note : part.notes) notes.push_back(rib.add_note(note));
    for (const RankedRoute& r : part.ranked) {
      // Ranks are of one record: those of an earlier one for the same prefix go.
      if (r.note != 0 && r.metric == 0) {
        for (const RouteCandidate& c : rib.candidates(r.prefix)) {
          if (c.source == source) rib.remove(r.prefix, source, c.metric);
        }
      }
      // Interned by add_all with all of the part's.
      const uint32_t hop = rib.next_hops().find(part.rib.next_hop_name(r.next_hop));
      rib.add(r.prefix,
              {r.metric, static_cast<uint16_t>(hop), source, part.preference, r.note == 0 ? 0 : notes[r.note - 1]});
    }
  }
  return rib;
}

}  // namespace

std::string path_of_route_file(const std::string& text) {
  return text.substr(0, path_end(text));
}

Result<RouteFile> parse_route_file(const std::string& text) {
  RouteFile file;
  size_t at = path_end(text);
  file.path = text.substr(0, at);
  while (at < text.size()) {
    const std::string_view option = option_at(text, at);
    const size_t begin = at + option.size();
    at = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, at - begin);
    if (option == kSource) {
      file.source = word;
      if (word.empty() || word.size() > 64)
        return Error(fmt::format("{}: a source of routes has a name of 1 to 64 bytes", file.path), "source=NAME");
    } else if (option == kPeer) {
      auto peer = parse_mrt_peer(word);
      if (!peer) return Error(fmt::format("{}: {}", file.path, peer.error().message), peer.error().hint);
      file.peer = *peer;
    } else {
      unsigned n = 0;
      const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), n);
      if (code != std::errc() || end != word.data() + word.size() || n > 255)
        return Error(fmt::format("{}: '{}' is not a preference", file.path, word), "preference=N, 0 (best) to 255");
      file.preference = static_cast<uint8_t>(n);
    }
    if (at < text.size() && option_at(text, at).empty())
      return Error(fmt::format("{}: '{}' is not an option of a route file", file.path, text.substr(at + 1)),
                   "FILE[,source=NAME][,preference=N][,peer=ADDRESS|ASn|N]");
  }
  return file;
}

Result<std::vector<RouteLine>> lines_of_routes(std::string_view text, const RouteFile& file) {
  auto sections = split_sections(text, file.path, file);
  if (!sections) return std::move(sections).error();
  std::vector<RouteLine> all;
  for (const Section& section : *sections) {
    const std::string_view part = text.substr(section.begin, section.end - section.begin);
    if (const RouteFormat format = detect_route_format(part); format != RouteFormat::kLines)
      return Error(fmt::format("{} is the output of {}, and lines of routes are what can be written", file.path,
                               to_string(format)));
    Rib rib;
    std::vector<RankedRoute> ranked;
    const size_t before = all.size();
    auto report = parse_route_lines(part, file.path, rib, &ranked, &all);
    if (!report) return std::move(report).error();
    for (size_t i = before; i < all.size(); ++i) all[i].begin += section.begin, all[i].end += section.begin;
  }
  return all;
}

std::vector<std::string> split_route_files(const std::string& text) {
  std::vector<std::string> files;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, end - at);
    at = end + 1;
    const std::string option = "," + one;
    if (!files.empty() && !option_at(option, 0).empty()) {
      files.back() += option;
    } else if (!one.empty()) {
      files.push_back(one);
    }
  }
  return files;
}

Result<Rib> read_routes_files(const std::vector<std::string>& files, RouteReport* report, InputSet* inputs) {
  auto parts = read_parts(files, report, nullptr, inputs);
  if (!parts) return std::move(parts).error();
  if (parts->empty()) return Rib();
  if (parts->size() == 1 && (*parts)[0].ranked.empty()) return std::move((*parts)[0].rib);
  auto all = join(*parts);
  if (!all) return std::move(all).error();
  return all->best_routes();
}

Result<SourcedRib> read_route_sources(const std::vector<std::string>& files, RouteReport* report, MrtOptions mrt,
                                      const NextHopIds& ids, InputSet* inputs) {
  auto parts = read_parts(files, report, &mrt, inputs);
  if (!parts) return std::move(parts).error();
  return join(*parts, ids);
}

}  // namespace sluice
