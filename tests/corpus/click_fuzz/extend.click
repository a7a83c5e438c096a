elementclass F { $a, $b | -> Print($a) -> || $a | -> Print(2) -> }
elementclass F { $a, $b, $c | -> Counter -> || ... }
Idle -> F(1) -> F(1, 2) -> F(1, 2, 3) -> Discard;
