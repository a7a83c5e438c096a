define($size 100, $label "q $size")
elementclass Limited { $cap, NAME $n | input -> Queue($cap) -> Print($n, "in $n") -> output; input [1] -> [1] output; }
a, b :: Idle;
a -> l :: Limited(NAME $label, $size) -> Discard;
b -> [1] l [1] -> Discard;
