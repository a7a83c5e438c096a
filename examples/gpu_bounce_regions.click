// As gpu_bounce_lists.click, but only the bytes that the element reads go to the GPU, side by side in mapped memory:
//
//   sluice run examples/gpu_bounce_regions.click --map dpdk:0=pcap:in.pcap,out.pcap

define ($nb_mbuf 65535)
define ($ndesc 2048)
define ($burst 32)
define ($batch 1024)
define ($minbatch 992)
define ($threads 2)

info :: DPDKInfo(NB_SOCKET_MBUF 0, NB_SOCKET_MBUF $(nb_mbuf))

from :: FromDPDKDevice(0, NDESC $ndesc, MAXTHREADS $threads, BURST $burst)
    -> MinBatch($minbatch, TIMER 1000)
    -> GPUEtherMirrorCoalescent(FROM 0, TO 12, VERBOSE false, CAPACITY 128, MAX_BATCH $batch, ZEROCOPY true,
                                COPYBACK false, BLOCKING false, QUEUES_PER_CORE 8)
    -> ToDPDKDevice(0, NDESC $ndesc, MAXTHREADS $threads, BLOCKING true)
