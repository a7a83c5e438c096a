// Looks destinations up on a GPU: the address is read from its place in the frame, without a check of the header.
//
//   sluice run examples/gpu_lookup.click --map dpdk:0=pcap:in.pcap,low.pcap --map dpdk:1=pcap:,high.pcap

define ($ndesc 2048)
define ($burst 32)
define ($batch 1024)

info :: DPDKInfo(65535)

FromDPDKDevice(0, NDESC $ndesc, BURST $burst)
    -> MinBatch(992, TIMER 1000)
    -> GetIPAddress(OFFSET 30)
    -> lookup :: GPUIPLookup(0.0.0.0/1 0, 128.0.0.0/1 1, CAPACITY 256, MAX_BATCH $batch, PERSISTENT_KERNEL true)

lookup[0] -> ToDPDKDevice(0, NDESC $ndesc, BLOCKING false)
lookup[1] -> ToDPDKDevice(1, NDESC $ndesc, BLOCKING false)
