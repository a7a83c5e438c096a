# 0 "built-in"
40 -> Discard;
