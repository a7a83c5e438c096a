// As gpu_crc_lists.click, by regions that are copied. MAX_PKT_SIZE is the size of a region: longer packets are dropped.
//
//   sluice run examples/gpu_crc_regions.click --map dpdk:0=pcap:in.pcap,out.pcap max_pkt_size=1518

define ($nb_mbuf 65535)
define ($ndesc 2048)
define ($burst 32)
define ($batch 1024)
define ($minbatch 992)
define ($threads 1)
define ($max_pkt_size 64)

info :: DPDKInfo($nb_mbuf)

FromDPDKDevice(0, NDESC $ndesc, MAXTHREADS $threads, BURST $burst, VERBOSE 10, NUMA 0)
    -> MinBatch($minbatch, TIMER 1000)
    -> GPUSetCRC32Coalescent(MAX_PKT_SIZE $max_pkt_size, VERBOSE false, CAPACITY 128, MAX_BATCH $batch, QUEUES_PER_CORE 1,
                             ZEROCOPY false)
    -> CheckCRC32
    -> ToDPDKDevice(0, NDESC $ndesc, MAXTHREADS $threads, BLOCKING false)
