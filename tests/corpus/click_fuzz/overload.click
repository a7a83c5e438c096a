elementclass P { $a | input -> Print($a) -> output || $a, __REST__ $r | input -> Print($a, $r) -> output }
Idle -> P(1) -> P(1, 2, MAXLENGTH 3) -> Discard
