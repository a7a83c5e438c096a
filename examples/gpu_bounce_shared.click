// Several receiving threads hand their packets to one that talks to the GPU, which hands them back. Here workers share
// whole batches and every worker talks to the GPU itself, so the graph gives the same packets by a shorter way:
//
//   sluice run examples/gpu_bounce_shared.click --workers 2 --map dpdk:0=pcap:in.pcap,out.pcap

define ($nb_mbuf 65535)
define ($batch 1024)
define ($burst 32)
define ($threads 2)
define ($master 2)

info :: DPDKInfo($nb_mbuf)
StaticThreadSched(to_gpu $master)

from :: FromDPDKDevice(0, NDESC 2048, BURST $burst, MAXTHREADS $threads)
to :: ToDPDKDevice(0, NDESC 2048, MAXTHREADS $threads)

from -> CPUPaint()
    -> to_gpu :: Pipeliner(BURST $burst, BLOCKING false, ALWAYS_UP false, PREFETCH true)
    -> ConstantBatch($batch, TIMER 1000)
    -> GPUEtherMirrorCoalescent(MAX_BATCH $batch, VERBOSE true, CAPACITY 1024, QUEUES_PER_CORE 2)
    -> back :: PaintSwitch()

back[0] -> back0 :: Pipeliner(THREAD 0) -> [0]to
back[1] -> back1 :: Pipeliner(THREAD 1) -> [0]to
