package network

import (
	"encoding/binary"
	"net"
	"syscall"

	"github.com/vishvananda/netlink"
)

// announce tells everybody on the network of the nodes where an address is now (gratuitous ARP, RFC 5227, 3).
func announce(link netlink.Link, ip net.IP) error {
	const arp = 0x0806
	hardware := link.Attrs().HardwareAddr
	if len(hardware) != 6 {
		return nil
	}
	broadcast := net.HardwareAddr{255, 255, 255, 255, 255, 255}
	var frame []byte
	frame = append(append(frame, broadcast...), hardware...)
	frame = binary.BigEndian.AppendUint16(frame, arp)
	// Ethernet, IPv4, lengths, request.
	frame = append(frame, 0, 1, 8, 0, 6, 4, 0, 1)
	frame = append(append(frame, hardware...), ip...)
	frame = append(append(frame, make([]byte, 6)...), ip...)

	network := uint16(arp>>8 | (arp&0xff)<<8)
	socket, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW, int(network))
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	to := &syscall.SockaddrLinklayer{Protocol: network, Ifindex: link.Attrs().Index, Halen: 6}
	copy(to.Addr[:], broadcast)
	return syscall.Sendto(socket, frame, 0, to)
}
