// Appends a CRC-32 to each packet on a GPU and checks it on the way out: what is wrong is dropped, what is right leaves as
// it came.
//
//   sluice run examples/gpu_crc_lists.click --map dpdk:0=pcap:in.pcap,out.pcap

define ($nb_mbuf 65535)
define ($ndesc 2048)
define ($burst 32)
define ($batch 512)
define ($minbatch 480)
define ($threads 1)
define ($resident true)

info :: DPDKInfo($nb_mbuf, MEMPOOL_GPU false)

FromDPDKDevice(0, NDESC $ndesc, MAXTHREADS $threads, BURST $burst)
    -> MinBatch($minbatch, TIMER 1000)
    -> GPUSetCRC32CommList(VERBOSE false, PERSISTENT_KERNEL $resident, CAPACITY 256, MAX_BATCH $batch, LISTS_PER_CORE 1)
    -> CheckCRC32
    -> ToDPDKDevice(0, NDESC $ndesc, MAXTHREADS $threads, BLOCKING false)
