require(package slice, linuxmodule);
require(package, ip6 twice);
a :: Idle;
