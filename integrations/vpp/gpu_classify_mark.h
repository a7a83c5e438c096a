// Where other plug-ins find the mark of a packet, in the second half of its buffer's metadata.
#pragma once

#include <vnet/buffer.h>

// Written for packets whose rule says `mark N`; of others it is what it was.
#define gpu_classify_mark(b) (vnet_buffer2(b)->unused[0])
