// For tests and fuzz targets: opens bytes that claim to be an ACL image, with the checksum put right, and uses every
// view.
#pragma once

#include <cstdlib>
#include <cstring>
#include <vector>

#include "tables/acl/algorithms.h"
#include "tables/reseal.h"

namespace sluice::acl_test {

// False when the bytes are refused; aborts when an answer is not a rule of the image. Out-of-bounds reads are the
// sanitizer's to find. View: of any algorithm that is offered, or of one that is not.
template <typename View = AclView>
bool answers_within_bounds(std::vector<std::byte> bytes, const std::vector<FlowKey>& keys) {
  if (bytes.size() >= sizeof(ImageHeader)) {
    ImageHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    std::memcpy(header.magic, Image::kMagic, sizeof header.magic);
    header.format_version = Image::kFormatVersion;
    header.kind = static_cast<uint32_t>(ImageKind::kAcl);
    header.total_bytes = bytes.size();
    std::memcpy(bytes.data(), &header, sizeof header);
    reseal(bytes);
  }
  auto image = Image::from_bytes(bytes, ImageKind::kAcl);
  if (!image) return false;
  auto view = View::open(*image);
  if (!view) return false;
  const auto rules = AclRulesView::open(*image);
  const auto actions = AclActionsView::open(*image);
  const auto source = AclSourceView::open(*image);
  if (!rules.ok()) std::abort();  // the lookup view holds the rules and has checked them
  std::vector<const FlowKey*> pointers;
  for (const FlowKey& key : keys) pointers.push_back(&key);
  std::vector<uint32_t> found(keys.size());
  view->lookup_burst(pointers.data(), found.data(), found.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (found[i] > rules->size() || view->lookup(keys[i]) > rules->size()) std::abort();
    if (actions.ok()) (void)actions->action(found[i]);
    if (source.ok() && source->file(found[i]).size() + source->line(found[i]) == ~size_t{0}) std::abort();
  }
  return true;
}

}  // namespace sluice::acl_test
