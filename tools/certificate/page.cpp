// The page: one file, no script, nothing fetched, light and dark.
#include <algorithm>
#include <sstream>

#include "certificate.h"
#include "page_style.h"

namespace bitexact_certificate {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

// 4,294,967,296
std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

const char* css_class(Verdict verdict) {
  switch (verdict) {
    case Verdict::equal: return "equal";
    case Verdict::failed: return "differs";
    default: return "blank";
  }
}

template <class Get>
int64_t sum(const std::vector<const Kernel*>& kernels, Get get) {
  int64_t total = 0;
  for (const Kernel* kernel : kernels) total += get(*kernel);
  return total;
}
int64_t exhaustive_of(const Kernel& k) { return k.report.exhaustive_compared; }
int64_t sampled_of(const Kernel& k) { return k.report.sampled_compared; }
int64_t mismatches_of(const Kernel& k) { return k.report.mismatches; }
int64_t payloads_of(const Kernel& k) { return k.report.nan_payload_differences; }

// In order of first appearance.
template <class Key>
std::vector<std::pair<std::string, std::vector<const Kernel*>>> grouped_by(
    const std::vector<const Kernel*>& kernels, Key key) {
  std::vector<std::pair<std::string, std::vector<const Kernel*>>> groups;
  for (const Kernel* kernel : kernels) {
    const std::string name = key(*kernel);
    auto at = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == name; });
    if (at == groups.end()) at = groups.insert(groups.end(), {name, {}});
    at->second.push_back(kernel);
  }
  return groups;
}

// ------------------------------------------------------------------------------------- maps --

// Tile by tile over kernels: differing elements summed up; swept only where all of them were.
Map added(const std::vector<const Kernel*>& kernels, size_t sweep) {
  Map all(tiles, 0);
  for (const Kernel* kernel : kernels) {
    for (size_t i = 0; i < tiles; ++i) {
      const int64_t one = kernel->maps[sweep][i];
      if (one > 0) {
        all[i] = std::max<int64_t>(all[i], 0) + one;
      } else if (one == not_swept && all[i] == 0) {
        all[i] = not_swept;
      }
    }
  }
  return all;
}

// From the five high bits of a float to its place on the number line, least first.
int line_place(int bits) {
  return bits < tiles_a_side / 2 ? tiles_a_side / 2 + bits : tiles_a_side - 1 - bits;
}

constexpr int cell = 8, margin = 46, side = tiles_a_side * cell;

void axis_ticks(std::ostringstream& o, bool horizontal) {
  struct Tick {
    double at;
    const char* text;
  };
  for (const Tick& tick :
       {Tick{0.5, "\u2212NaN"}, {8.5, "\u22121"}, {16, "\u00b10"}, {23.5, "1"}, {31.5, "NaN"}}) {
    const double along = tick.at * cell;
    if (horizontal) {
      o << "<text x='" << margin + along << "' y='" << side + 14 << "' text-anchor='middle'>" << tick.text
        << "</text>";
    } else {
      o << "<text x='" << margin - 6 << "' y='" << side - along + 3.5 << "' text-anchor='end'>" << tick.text
        << "</text>";
    }
  }
}

void draw(std::ostringstream& o, const Map& map, const Axes& axes, bool line_columns) {
  o << "<svg viewBox='0 0 " << margin + side + 8 << " " << side + 36 << "' role='img' aria-label='"
    << escaped(axes.name) << "'><g transform='translate(" << margin << " 0)'>";
  for (int i = 0; i < tiles; ++i) {
    const int row = line_place(i / tiles_a_side), low = i % tiles_a_side;
    const int column = line_columns ? line_place(low) : low;
    const int64_t count = map[static_cast<size_t>(i)];
    o << "<rect x='" << column * cell << "' y='" << (tiles_a_side - 1 - row) * cell
      << "' width='7' height='7' class='"
      << (count > 0    ? "differs"
          : count == 0 ? "equal"
                       : "blank")
      << "'>";
    if (count > 0) o << "<title>" << grouped(count) << " differ</title>";
    o << "</rect>";
  }
  o << "</g>";
  axis_ticks(o, false);
  if (line_columns) axis_ticks(o, true);
  o << "<text x='" << margin + side / 2 << "' y='" << side + 30 << "' text-anchor='middle'>"
    << escaped(axes.columns) << "</text><text transform='translate(10 " << side / 2
    << ") rotate(-90)' text-anchor='middle'>" << escaped(axes.rows) << "</text></svg>";
}

void figures(std::ostringstream& o, const std::vector<const Kernel*>& kernels) {
  for (const auto& [dtype, all] :
       grouped_by(kernels, [](const Kernel& k) { return dtype_name(k.facts.dtype); })) {
    std::vector<const Kernel*> swept;
    for (const Kernel* kernel : all) {
      if (!kernel->maps.empty()) swept.push_back(kernel);
    }
    if (swept.empty()) continue;
    const std::vector<Axes> axes = axes_of(*swept[0]);
    for (size_t sweep = 0; sweep < swept[0]->maps.size(); ++sweep) {
      const Map map = added(swept, sweep);
      const auto done =
          std::count_if(map.begin(), map.end(), [](int64_t count) { return count != not_swept; });
      int64_t differing = 0;
      for (const int64_t count : map) differing += std::max<int64_t>(count, 0);
      o << "<figure>";
      draw(o, map, axes[sweep], axes[sweep].rows.find("high") == std::string::npos);
      o << "<figcaption><b>" << escaped(dtype) << ": " << escaped(axes[sweep].name) << "</b><br>"
        << swept.size() << (swept.size() == 1 ? " kernel, " : " kernels, ") << done << " of " << tiles
        << " tiles swept in all of them, <span class='" << (differing > 0 ? "bad" : "") << "'>"
        << grouped(differing) << " outputs differ</span></figcaption></figure>";
    }
  }
}

// ------------------------------------------------------------------------------------- table --

// How the digests of the kernels swept whole stand to PyTorch's.
std::string digest_cell(const std::vector<const Kernel*>& kernels) {
  std::string digest, verdict;
  for (const Kernel* k : kernels) {
    if (!k->complete() || k->report.exhaustive_compared == 0) continue;
    const std::string one =
        k->has_golden ? (k->report.digest == k->golden ? "equal" : "DIFFERENT") : "not captured";
    if (verdict.empty() || one == "DIFFERENT") verdict = one;
    const std::string text = digest_text(k->report.digest);
    if (digest.find(text) == std::string::npos) digest += (digest.empty() ? "" : " ") + text;
  }
  if (verdict.empty()) return "<td>\u2013</td><td>\u2013</td>";
  return "<td><code>" + digest + "</code></td><td class='" + (verdict == "DIFFERENT" ? "bad" : "") + "'>" +
         verdict + "</td>";
}

void table(std::ostringstream& o, const std::vector<const Kernel*>& kernels) {
  o << "<div class='wide'><table><thead><tr><th>dtype</th><th>numerics</th><th>kernels</th><th>swept "
       "whole</th>"
       "<th>sampled</th><th>differ</th><th>NaN payloads</th><th>digest of the whole sweeps</th>"
       "<th>PyTorch's</th></tr></thead><tbody>";
  for (const auto& [numerics, group] : grouped_by(kernels, [](const Kernel& k) { return k.numerics; })) {
    const size_t words = numerics.find(' ', numerics.find(' ') + 1);
    o << "<tr><td>" << dtype_name(group[0]->facts.dtype) << "</td><td>" << escaped(numerics.substr(words + 1))
      << "</td><td class='forms'>";
    for (const Kernel* k : group) {
      const bool whole = !k->maps.empty();
      o << "<i class='" << css_class(k->verdict()) << (whole ? "" : " part") << "' title='"
        << escaped(k->form) << ": " << text_of(k->verdict()) << (whole ? ", swept whole" : ", sampled")
        << "'>" << (k->verdict() == Verdict::failed ? "\u00d7" : "") << "</i>";
    }
    const int64_t differing = sum(group, mismatches_of);
    o << "</td><td class='n'>" << grouped(sum(group, exhaustive_of)) << "</td><td class='n'>"
      << grouped(sum(group, sampled_of)) << "</td><td class='n" << (differing > 0 ? " bad" : "") << "'>"
      << grouped(differing) << "</td><td class='n'>" << grouped(sum(group, payloads_of)) << "</td>"
      << digest_cell(group) << "</tr>";
  }
  o << "</tbody></table></div>";
}

void failures(std::ostringstream& o, const Certificate& c) {
  if (c.count(Verdict::failed) == 0) return;
  o << "<h2>What differs</h2><div class='wide'><table><thead><tr><th>kernel</th><th>outputs</th><th>first: "
       "inputs</th>"
       "<th>expected</th><th>got</th></tr></thead><tbody>";
  for (const Kernel& k : c.kernels) {
    if (k.verdict() != Verdict::failed) continue;
    o << "<tr><td>" << escaped(k.name) << "</td><td class='n bad'>" << grouped(k.report.mismatches)
      << "</td><td><code>";
    for (const uint64_t bits : k.report.mismatch_inputs) o << hex(bits) << " ";
    o << "</code></td><td><code>" << hex(k.report.mismatch_expected) << "</code></td><td><code>"
      << hex(k.report.mismatch_actual) << "</code></td></tr>";
  }
  o << "</tbody></table></div>";
}

// -------------------------------------------------------------------------------------- head --

std::string version_text(int32_t version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void facts(std::ostringstream& o, const Certificate& c) {
  auto fact = [&](const char* name, const std::string& text) {
    if (!text.empty()) o << "<dt>" << name << "</dt><dd>" << escaped(text) << "</dd>";
  };
  const bool host = c.facts.image == BITEXACT_IMAGE_HOST;
  const std::string code = c.facts.image == BITEXACT_IMAGE_PTX ? "PTX for " : "machine code for ";
  o << "<dl>";
  fact("Device", c.device);
  if (!host) {
    fact("Compute capability",
         std::to_string(c.facts.architecture / 10) + "." + std::to_string(c.facts.architecture % 10));
    fact("Code that ran", code + std::to_string(c.facts.image_architecture));
    fact("Driver is for CUDA", version_text(c.facts.driver_version));
    fact("CUDA runtime", version_text(c.facts.runtime_version));
  }
  fact("Library", c.build);
  fact("Golden digests of", c.golden_origin);
  fact("Swept", c.selection);
  std::ostringstream seconds;
  seconds.precision(1);
  seconds << std::fixed << c.seconds << " s";
  fact("Started, took", c.started + ", " + seconds.str());
  o << "</dl>";
}

void numbers(std::ostringstream& o, const Certificate& c, const std::vector<const Kernel*>& all) {
  auto number = [&](const std::string& value, const char* what, bool bad) {
    o << "<div class='number" << (bad ? " bad" : "") << "'><b>" << value << "</b>" << what << "</div>";
  };
  const int64_t equal = c.count(Verdict::equal), failed = c.count(Verdict::failed);
  const int64_t open = c.count(Verdict::incomplete) + c.count(Verdict::not_run),
                differing = sum(all, mismatches_of);
  o << "<div class='numbers'>";
  number(grouped(equal), "kernels equal, swept to the end", false);
  number(grouped(failed), "kernels that differ", failed > 0);
  number(grouped(open), "kernels not swept to the end", open > 0);
  number(grouped(c.count(Verdict::unsupported)), "kernels this device has not", false);
  number(grouped(sum(all, exhaustive_of)), "outputs of domains swept whole", false);
  number(grouped(sum(all, sampled_of)), "outputs of samples", false);
  number(grouped(differing), "outputs that differ", differing > 0);
  o << "</div>";
}

}  // namespace

std::string to_page(const Certificate& c) {
  std::vector<const Kernel*> all;
  for (const Kernel& kernel : c.kernels) all.push_back(&kernel);
  const std::string title = "bitexact: " + c.headline();
  std::ostringstream o;
  o << "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
       "content='width=device-width,initial-scale=1'><title>"
    << escaped(title) << "</title><style>" << page_style << "</style></head><body><header class='"
    << (c.proven()                                         ? "pass"
        : c.count(Verdict::failed) > 0 || !c.error.empty() ? "fail"
                                                           : "open")
    << "'><h1>" << escaped(c.headline()) << "</h1><p>"
    << escaped(c.device.empty() ? "no device yet" : c.device) << " \u00b7 " << escaped(c.selection) << "</p>";
  if (!c.error.empty()) o << "<p>" << escaped(c.error) << "</p>";
  o << "</header><main>";
  numbers(o, c, all);
  facts(o, c);
  failures(o, c);
  o << page_legend;
  for (const auto& [operation, kernels] :
       grouped_by(all, [](const Kernel& k) { return operation_name(k.facts.operation); })) {
    o << "<h2>" << escaped(operation) << "</h2><div class='figures'>";
    figures(o, kernels);
    o << "</div>";
    table(o, kernels);
  }
  o << "</main></body></html>\n";
  return o.str();
}

}  // namespace bitexact_certificate
