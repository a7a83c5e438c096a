// What classify and route find out about each packet or address, and where it goes.
// host only
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "app.h"
#include "confine.h"
#include "control/json.h"

namespace sluice::app {

// Lines in --out, or standard output; with -o json and without --out a list in the report instead.
class LookupResults {
 public:
  explicit LookupResults(std::string out) : inside(json_output() && out.empty()), out_(std::move(out)) {}

  void declare(RunFiles& files) const {
    if (!inside) output_file(files, out_);
  }
  // Once what is left to read is open: the program gives up all else. `device`: the label of what looks up.
  void begin(const std::string& device) {
    in_order_.emplace();
    if (!inside) file_ = need(AtomicFile::create(out_.empty() ? "-" : out_), Exit::kIo);
    if (device == "cpu" || device.starts_with("emu")) {
      refuse_calls();
      refuse_files({}, {out_});
    }
  }
  // Writes `lines`, and empties them. False: nothing more can be written.
  bool write() {
    if (inside) return true;
    file_.write(lines);
    lines.clear();
    return file_.ok();
  }
  // The outputs end, then comes the report: `json`, or `text` for people.
  Exit end(bool partial, const std::optional<Error>& damage, Json json, const std::string& text) {
    const Ending ending = partial ? Ending::kPartial : Ending::kWhole;
    const std::string place = inside ? std::string() : file_.path_of(ending);
    if (!inside) need(file_.commit(ending), Exit::kIo);
    if (inside) json["results"] = std::move(list);
    if (json_output()) {
      print_json(json);
    } else {
      note(text);
    }
    return partial ? end_partial({place}, damage) : Exit::kOk;
  }

  const bool inside;
  Json list = Json::array();
  std::string lines;

 private:
  std::string out_;
  std::optional<EndsInOrder> in_order_;
  AtomicFile file_;
};

}  // namespace sluice::app
