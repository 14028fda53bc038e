/**
 * What kind of address a host name leads to, and whether a redirect may go there. A hub, or whoever writes its redirects, must not be able
 * to make us ask machines that only we can reach: those of the local network, a cloud's metadata service, ourselves. The addresses are
 * judged when the connection is made, so that a name which answers with another address the second time gains nothing. Pure.
 */
import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';

export type AddressKind = 'public' | 'loopback' | 'private' | 'link-local' | 'reserved';

type Range = readonly [network: string, prefix: number, family: 'ipv4' | 'ipv6'];

const ranges: readonly (readonly [AddressKind, readonly Range[]])[] = [
  [
    'loopback',
    [
      ['127.0.0.0', 8, 'ipv4'],
      ['::1', 128, 'ipv6'],
    ],
  ],
  [
    'link-local',
    [
      ['169.254.0.0', 16, 'ipv4'],
      ['fe80::', 10, 'ipv6'],
    ],
  ],
  [
    'private',
    [
      ['10.0.0.0', 8, 'ipv4'],
      ['100.64.0.0', 10, 'ipv4'],
      ['172.16.0.0', 12, 'ipv4'],
      ['192.168.0.0', 16, 'ipv4'],
      ['fc00::', 7, 'ipv6'],
      ['fec0::', 10, 'ipv6'],
    ],
  ],
  [
    'reserved',
    [
      ['0.0.0.0', 8, 'ipv4'],
      ['192.0.0.0', 24, 'ipv4'],
      ['192.0.2.0', 24, 'ipv4'],
      ['198.18.0.0', 15, 'ipv4'],
      ['198.51.100.0', 24, 'ipv4'],
      ['203.0.113.0', 24, 'ipv4'],
      ['224.0.0.0', 3, 'ipv4'],
      ['::', 96, 'ipv6'],
      ['100::', 64, 'ipv6'],
      ['2001:db8::', 32, 'ipv6'],
      ['ff00::', 8, 'ipv6'],
    ],
  ],
];

const lists = ranges.map(([kind, nets]) => {
  const list = new BlockList();
  for (const [network, prefix, family] of nets) list.addSubnet(network, prefix, family);
  return [kind, list] as const;
});

/** Networks of IPv6 that carry an IPv4 address, and the first of its two groups. */
const carriers: readonly (readonly [RegExp, number])[] = [
  [/^0:0:0:0:0:ffff:/, 6],
  [/^64:ff9b:0:0:0:0:/, 6],
  [/^2002:/, 1],
];

/** The kind of an IP address; what is none, is reserved. */
export function addressKind(address: string): AddressKind {
  const bare = address.replace(/^\[|\]$/g, '').replace(/%.*$/, '');
  if (isIPv4(bare)) return kindIn(bare, 'ipv4');
  if (!isIPv6(bare)) return 'reserved';
  const groups = groupsOf(bare);
  const text = groups.map((group) => group.toString(16)).join(':');
  const carrier = carriers.find(([pattern]) => pattern.test(text));
  if (carrier === undefined) return kindIn(bare, 'ipv6');
  const [high = 0, low = 0] = groups.slice(carrier[1], carrier[1] + 2);
  return kindIn([high >> 8, high & 255, low >> 8, low & 255].join('.'), 'ipv4');
}

function kindIn(address: string, family: 'ipv4' | 'ipv6'): AddressKind {
  return lists.find(([, list]) => list.check(address, family))?.[0] ?? 'public';
}

/** The eight groups of an IPv6 address. The URL parser knows every way to write one, and gives one back. */
function groupsOf(address: string): number[] {
  const host = new URL(`http://[${address}]/`).hostname.slice(1, -1);
  const [head = '', tail] = host.split('::');
  const numbers = (part: string): number[] => (part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16)));
  const first = numbers(head);
  const last = tail === undefined ? [] : numbers(tail);
  return [...first, ...Array<number>(8 - first.length - last.length).fill(0), ...last];
}

/** True when the host of a URL is an address and no name. */
export const isAddress = (host: string): boolean => isIP(host.replace(/^\[|\]$/g, '')) !== 0;
