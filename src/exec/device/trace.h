// host only
// TraceRange: a named stretch of a thread's time for NVIDIA's profilers (Nsight Systems). Per batch, never per packet.
// Without CUDA it is nothing.
#pragma once

namespace sluice {

// exec/cuda/trace.cpp, or open.cpp where there is no CUDA. `name` is a literal. Ranges of one thread nest.
void trace_push(const char* name);
void trace_pop();

class TraceRange {
 public:
  explicit TraceRange(const char* name) { trace_push(name); }
  ~TraceRange() { trace_pop(); }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

// A range over several calls: begins with the first `begin` and ends with `end`, which do nothing when repeated.
class TraceSpan {
 public:
  TraceSpan() = default;
  ~TraceSpan() { end(); }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  void begin(const char* name) {
    if (!open_) trace_push(name);
    open_ = true;
  }
  void end() {
    if (open_) trace_pop();
    open_ = false;
  }

 private:
  bool open_ = false;
};

}  // namespace sluice
