// host only
#include "elements/register_all.h"

namespace sluice {

// Each is defined in its element's folder, element.cpp. `./dev new element NAME` adds one here and below.
using Register = void(Registry&);
Register register_acl, register_adjacency, register_batching, register_classifier, register_counter, register_crc32,
    register_dec_ttl, register_ether, register_icmp_error, register_idle, register_info, register_ip_filter,
    register_ip_fragmenter, register_ip_gw_options, register_ip_input, register_ip_lookup, register_ip_print,
    register_paint, register_port_switch, register_ports, register_print, register_qos, register_classify_dscp,
    register_classify_mark, register_police, register_shape, register_queue, register_rated_source, register_route,
    register_sched, register_script, register_set_ip_dscp, register_shaper, register_strip, register_summary_dump,
    register_switch, register_tables, register_truncate, register_tee, register_unqueue, register_get_ip_address,
    register_device;

void register_elements(Registry& registry) {
  for (Register* add :
       {register_ports,          register_counter,       register_idle,          register_tee,    register_ip_input,
        register_dec_ttl,        register_icmp_error,    register_classifier,    register_acl,    register_route,
        register_ip_lookup,      register_ip_filter,     register_adjacency,     register_tables, register_strip,
        register_ether,          register_paint,         register_port_switch,   register_crc32,  register_print,
        register_ip_print,       register_ip_fragmenter, register_ip_gw_options, register_queue,  register_unqueue,
        register_shaper,         register_sched,         register_rated_source,  register_switch, register_script,
        register_summary_dump,   register_set_ip_dscp,   register_truncate,      register_info,   register_batching,
        register_classify_dscp,  register_classify_mark, register_police,        register_shape,  register_qos,
        register_get_ip_address, register_device}) {
    add(registry);
  }
}

}  // namespace sluice
