require(library abc, library ab)
elementclass A { -> Counter -> }
Idle -> A -> Discard;
    