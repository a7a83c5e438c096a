// Sends each packet back to the port that it came from, with its MAC addresses exchanged by a GPU that is given lists of
// frames. In the form of FastClick-GPU's configurations; captures stand for the port:
//
//   sluice run examples/gpu_bounce_lists.click --map dpdk:0=pcap:in.pcap,out.pcap

define ($ndesc 2048)
define ($burst 32)
define ($batch 256)
define ($minbatch 224)  // a burst fewer than $batch
define ($threads 1)
define ($lists 2)
define ($resident false)

info :: DPDKInfo(MEMPOOL_GPU false)

FromDPDKDevice(0, NDESC $ndesc, MAXTHREADS $threads, BURST $burst)
    -> MinBatch($minbatch, TIMER 1000)
    -> GPUEtherMirrorCommList(VERBOSE false, PERSISTENT_KERNEL $resident, CAPACITY 256, MAX_BATCH $batch, LISTS_PER_CORE $lists)
    -> ToDPDKDevice(0, NDESC $ndesc, MAXTHREADS $threads, BLOCKING false)
