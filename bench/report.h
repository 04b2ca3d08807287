// Options, and the results: a line a shape on stdout, everything in the file named by --json.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness.h"

namespace bench {

struct Options {
  std::string json, filter;
  double seconds = 0.2;  // of replays a shape; 0: each work once
};

class Report {
 public:
  // Ends the program with usage or help where the arguments ask for it.
  Report(int argc, char** argv, const std::string& title);

  const Options& options() const { return options_; }

  // Measures a shape if the filter wants it. A failure is reported in its place and the next one goes on.
  // `bytes`: read and written, tables not counted; 0 = not a matter of bytes.
  void shape(const std::string& name, double bytes,
             const std::function<std::vector<Measurement>(Rotation&)>& measure);

  // Whatever the filter says: small shapes are held against it.
  void empty_kernel();

  int exit_code() const { return failures_ == 0 ? 0 : 1; }

 private:
  void print(const std::string& name, double bytes, const std::vector<Measurement>& measurements);
  void write() const;

  Options options_;
  std::string title_;
  std::vector<std::string> shapes_;  // JSON objects
  int failures_ = 0;
  double empty_us_ = 0;
};

}  // namespace bench
