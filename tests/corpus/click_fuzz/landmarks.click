# 12 "first.click"
a :: Idle;
#line 40 "second.click"
a -> /* here */ b :: { -> Counter -> } -> Discard // end
require(package sluice, ip6);
