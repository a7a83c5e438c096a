// A source, a counter and a sink.
InfiniteSource(LIMIT 5, DATA \<48 45 4c>) -> c :: Counter -> Discard;
