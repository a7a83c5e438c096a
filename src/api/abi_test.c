/* What programs that are built already rely on: sizes and offsets. Compiled as strict C99, which also shows that the
 * header is. A number here changes with the soname alone. */
#include <sluice/sluice.h>

#define HOLDS(name, what) typedef char sluice_abi_##name[(what) ? 1 : -1]
#define AT(type, field, offset) HOLDS(type##_##field, offsetof(type, field) == (offset))
#define BYTES(type, bytes) HOLDS(size_of_##type, sizeof(type) == (bytes))

BYTES(sluice_error, 56);
AT(sluice_error, message, 0);
AT(sluice_error, file, 8);
AT(sluice_error, source, 16);
AT(sluice_error, expected, 24);
AT(sluice_error, help, 32);
AT(sluice_error, line, 40);
AT(sluice_error, column, 44);
AT(sluice_error, length, 48);

BYTES(sluice_key, 48);
AT(sluice_key, src_hi, 0);
AT(sluice_key, src_lo, 8);
AT(sluice_key, dst_hi, 16);
AT(sluice_key, dst_lo, 24);
AT(sluice_key, src_port, 32);
AT(sluice_key, dst_port, 34);
AT(sluice_key, flags, 36);
AT(sluice_key, protocol, 38);
AT(sluice_key, dscp, 39);
AT(sluice_key, family, 40);
AT(sluice_key, bits, 41);
AT(sluice_key, icmp, 42);
AT(sluice_key, bytes, 44);

BYTES(sluice_key_columns, 128);
AT(sluice_key_columns, family, 8);
AT(sluice_key_columns, src4, 16);
AT(sluice_key_columns, dst4, 24);
AT(sluice_key_columns, src_hi, 32);
AT(sluice_key_columns, dst_lo, 56);
AT(sluice_key_columns, protocol, 64);
AT(sluice_key_columns, src_port, 72);
AT(sluice_key_columns, dst_port, 80);
AT(sluice_key_columns, flags, 88);
AT(sluice_key_columns, icmp, 96);
AT(sluice_key_columns, dscp, 104);
AT(sluice_key_columns, bits, 112);
AT(sluice_key_columns, bytes, 120);

BYTES(sluice_acl_options, 32);
AT(sluice_acl_options, algorithm, 8);
AT(sluice_acl_options, format, 16);
AT(sluice_acl_options, count, 24);

BYTES(sluice_acl_shape, 32);
AT(sluice_acl_shape, tables, 8);
AT(sluice_acl_shape, slots, 16);
AT(sluice_acl_shape, bytes, 24);

BYTES(sluice_match, 12);
AT(sluice_match, rule, 0);
AT(sluice_match, action, 4);
AT(sluice_match, mark, 8);

BYTES(sluice_rule, 40);
AT(sluice_rule, text, 0);
AT(sluice_rule, file, 8);
AT(sluice_rule, line, 16);
AT(sluice_rule, action, 20);
AT(sluice_rule, mark, 24);
AT(sluice_rule, generation, 32);

BYTES(sluice_counter, 16);
AT(sluice_counter, packets, 0);
AT(sluice_counter, bytes, 8);

BYTES(sluice_fib_options, 24);
AT(sluice_fib_options, algorithm4, 8);
AT(sluice_fib_options, algorithm6, 16);

BYTES(sluice_channel_options, 24);
AT(sluice_channel_options, mode, 8);
AT(sluice_channel_options, burst, 12);
AT(sluice_channel_options, flights, 16);

BYTES(sluice_column, 16);
AT(sluice_column, stride, 8);

BYTES(sluice_resident_keys, 240);
AT(sluice_resident_keys, family, 8);
AT(sluice_resident_keys, all_bits, 12);
AT(sluice_resident_keys, keys, 16);
AT(sluice_resident_keys, families, 32);
AT(sluice_resident_keys, src4, 48);
AT(sluice_resident_keys, dst6, 96);
AT(sluice_resident_keys, protocol, 112);
AT(sluice_resident_keys, src_port, 128);
AT(sluice_resident_keys, dst_port, 144);
AT(sluice_resident_keys, flags, 160);
AT(sluice_resident_keys, tcp_flags, 176);
AT(sluice_resident_keys, icmp, 192);
AT(sluice_resident_keys, dscp, 208);
AT(sluice_resident_keys, bits, 224);

BYTES(sluice_graph_options, 16);
AT(sluice_graph_options, workers, 8);
AT(sluice_graph_options, capacity, 12);

BYTES(sluice_frame, 24);
AT(sluice_frame, data, 0);
AT(sluice_frame, captured, 8);
AT(sluice_frame, wire_bytes, 12);
AT(sluice_frame, timestamp_ns, 16);

BYTES(sluice_packet, 32);
AT(sluice_packet, data, 0);
AT(sluice_packet, captured, 8);
AT(sluice_packet, wire_bytes, 12);
AT(sluice_packet, timestamp_ns, 16);
AT(sluice_packet, output, 24);
AT(sluice_packet, port, 28);

BYTES(sluice_fate, 24);
AT(sluice_fate, number, 0);
AT(sluice_fate, reason, 8);
AT(sluice_fate, element, 12);
AT(sluice_fate, rule, 16);
AT(sluice_fate, next_hop, 20);

BYTES(sluice_graph_counts, 40);
AT(sluice_graph_counts, pushed, 8);
AT(sluice_graph_counts, made, 16);
AT(sluice_graph_counts, out, 24);
AT(sluice_graph_counts, dropped, 32);

HOLDS(actions, SLUICE_NO_MATCH == 0 && SLUICE_PERMIT == 1 && SLUICE_DENY == 2 && SLUICE_MARK == 3);
HOLDS(bits, SLUICE_KEY_PORTS == 1 && SLUICE_KEY_FRAGMENT == 2 && SLUICE_KEY_LATER_FRAGMENT == 4);
HOLDS(modes, SLUICE_LAUNCH == 0 && SLUICE_PERSISTENT == 1);
HOLDS(answers, SLUICE_ANSWER_POSITION == 0 && SLUICE_ANSWER_ACTION == 1 && SLUICE_ANSWER_MARK == 2 &&
                   SLUICE_ANSWER_NEXT_HOP == 3 && SLUICE_ANSWER_INDEX == 4);

/* The initialisers are those of C. */
sluice_acl_options sluice_abi_acl_options(void) {
  const sluice_acl_options options = SLUICE_ACL_OPTIONS_INIT;
  return options;
}
sluice_fib_options sluice_abi_fib_options(void) {
  const sluice_fib_options options = SLUICE_FIB_OPTIONS_INIT;
  return options;
}
sluice_channel_options sluice_abi_channel_options(void) {
  const sluice_channel_options options = SLUICE_CHANNEL_OPTIONS_INIT;
  return options;
}
sluice_resident_keys sluice_abi_resident_keys(void) {
  const sluice_resident_keys keys = SLUICE_RESIDENT_KEYS_INIT;
  return keys;
}
sluice_graph_options sluice_abi_graph_options(void) {
  const sluice_graph_options options = SLUICE_GRAPH_OPTIONS_INIT;
  return options;
}
