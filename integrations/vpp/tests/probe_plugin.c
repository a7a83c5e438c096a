// What the tests see of buffers: a feature before the classification that writes a mark into every buffer, one behind
// it that counts the marks that it finds, and a node that is registered for packets of a mark.
#include <vlib/vlib.h>
#include <vnet/feature/feature.h>
#include <vnet/plugin/plugin.h>

#include "../gpu_classify_mark.h"

#define OTHERS 16

static struct {
  u64 marks[OTHERS + 1];  // of marks below OTHERS; the last: of all others
  u64 given;              // to the registered node
} probe;

typedef enum { PROBE_NEXT_DROP, PROBE_N_NEXT } probe_next_t;

static_always_inline uword probe_feature(vlib_main_t* vm, vlib_node_runtime_t* node, vlib_frame_t* frame, int dirty) {
  u32* from = vlib_frame_vector_args(frame);
  vlib_buffer_t* bufs[VLIB_FRAME_SIZE];
  u16 nexts[VLIB_FRAME_SIZE];
  vlib_get_buffers(vm, from, bufs, frame->n_vectors);
  for (u32 i = 0; i < frame->n_vectors; ++i) {
    vnet_feature_next_u16(&nexts[i], bufs[i]);
    if (dirty)
      gpu_classify_mark(bufs[i]) = 0xdead;
    else
      probe.marks[clib_min(gpu_classify_mark(bufs[i]), OTHERS)]++;
  }
  vlib_buffer_enqueue_to_next(vm, node, from, nexts, frame->n_vectors);
  return frame->n_vectors;
}

VLIB_NODE_FN(probe_dirty_node)(vlib_main_t* vm, vlib_node_runtime_t* node, vlib_frame_t* frame) {
  return probe_feature(vm, node, frame, 1);
}
VLIB_NODE_FN(probe_count_node)(vlib_main_t* vm, vlib_node_runtime_t* node, vlib_frame_t* frame) {
  return probe_feature(vm, node, frame, 0);
}
VLIB_NODE_FN(probe_target_node)(vlib_main_t* vm, vlib_node_runtime_t* node, vlib_frame_t* frame) {
  probe.given += frame->n_vectors;
  vlib_buffer_free(vm, vlib_frame_vector_args(frame), frame->n_vectors);
  return frame->n_vectors;
}

#define PROBE_NODE(node, n)                             \
  VLIB_REGISTER_NODE(node) = {                          \
      .name = n,                                        \
      .vector_size = sizeof(u32),                       \
      .type = VLIB_NODE_TYPE_INTERNAL,                  \
      .n_next_nodes = PROBE_N_NEXT,                     \
      .next_nodes = {[PROBE_NEXT_DROP] = "error-drop"}, \
  }
PROBE_NODE(probe_dirty_node, "sluice-probe-dirty");
PROBE_NODE(probe_count_node, "sluice-probe-count");
PROBE_NODE(probe_target_node, "sluice-probe-target");

#define PROBE_FEATURES(family)                                  \
  VNET_FEATURE_INIT(probe_dirty_##family, static) = {           \
      .arc_name = #family "-unicast",                           \
      .node_name = "sluice-probe-dirty",                        \
      .runs_before = VNET_FEATURES("sluice-classify-" #family), \
  };                                                            \
  VNET_FEATURE_INIT(probe_count_##family, static) = {           \
      .arc_name = #family "-unicast",                           \
      .node_name = "sluice-probe-count",                        \
      .runs_after = VNET_FEATURES("sluice-classify-" #family),  \
      .runs_before = VNET_FEATURES(#family "-lookup"),          \
  }
PROBE_FEATURES(ip4);
PROBE_FEATURES(ip6);

static clib_error_t* probe_enable(vlib_main_t* vm, unformat_input_t* input, vlib_cli_command_t* cmd) {
  u32 sw_if_index = ~0;
  if (!unformat(input, "%U", unformat_vnet_sw_interface, vnet_get_main(), &sw_if_index))
    return clib_error_return(0, "an interface is expected");
  for (u32 i = 0; i < 2; ++i) {
    const char* arc = i == 0 ? "ip4-unicast" : "ip6-unicast";
    vnet_feature_enable_disable(arc, "sluice-probe-dirty", sw_if_index, cmd->function_arg, 0, 0);
    vnet_feature_enable_disable(arc, "sluice-probe-count", sw_if_index, cmd->function_arg, 0, 0);
  }
  return NULL;
}
VLIB_CLI_COMMAND(probe_enable_command, static) = {
    .path = "sluice-probe enable",
    .function = probe_enable,
    .function_arg = 1,
};
VLIB_CLI_COMMAND(probe_disable_command, static) = {
    .path = "sluice-probe disable",
    .function = probe_enable,
    .function_arg = 0,
};

// Shows what was seen since the command before.
static clib_error_t* probe_show(vlib_main_t* vm, unformat_input_t* input, vlib_cli_command_t* cmd) {
  for (u32 i = 0; i <= OTHERS; ++i) {
    if (probe.marks[i] != 0) vlib_cli_output(vm, i < OTHERS ? "mark %u: %llu" : "other: %llu", i, probe.marks[i]);
  }
  vlib_cli_output(vm, "given: %llu", probe.given);
  clib_memset(&probe, 0, sizeof probe);
  return NULL;
}
VLIB_CLI_COMMAND(probe_show_command, static) = {
    .path = "show sluice-probe",
    .function = probe_show,
};

// The errors of a registration, which are no reason to stop.
static clib_error_t* probe_register(vlib_main_t* vm, unformat_input_t* input, vlib_cli_command_t* cmd) {
  u8 *ip4 = NULL, *ip6 = NULL;
  u32 packets = 0;
  clib_error_t* error = NULL;
  if (!unformat(input, "%s %s %u", &ip4, &ip6, &packets))
    error = clib_error_return(0, "two nodes and a number are expected");
  else {
    vec_terminate_c_string(ip4);
    vec_terminate_c_string(ip6);
    error = gpu_classify_register_target((char*)ip4, (char*)ip6, packets);
  }
  vec_free(ip4);
  vec_free(ip6);
  return error;
}
VLIB_CLI_COMMAND(probe_register_command, static) = {
    .path = "sluice-probe register",
    .function = probe_register,
};

static clib_error_t* probe_init(vlib_main_t* vm) {
  return gpu_classify_register_target("sluice-probe-target", "sluice-probe-target", GPU_CLASSIFY_INPUT);
}
VLIB_INIT_FUNCTION(probe_init);

VLIB_PLUGIN_REGISTER() = {
    .version = "0.1.0",
    .description = "What the tests of sluice_plugin.so see of buffers",
};
