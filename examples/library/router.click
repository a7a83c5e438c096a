// What router.c runs: an access list, routes, and frames with the next hop's addresses.
AclTable(edge, FILE edge.acl);
RouteTable(fib, FILE rib.txt);
AdjacencyTable(adj, ROUTES fib);

in :: FromDump(in.pcap) -> IPInput -> acl :: ACL(TABLE edge) -> route :: IPRoute(TABLE fib)
  -> ttl :: DecIPTTL -> AdjacencyRewrite(TABLE adj) -> out :: ToDump(out.pcap);
