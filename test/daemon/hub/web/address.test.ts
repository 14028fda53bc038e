import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type AddressKind, addressKind, isAddress } from '../../../../daemon/hub/web/address.js';

const cases: Readonly<Record<AddressKind, readonly string[]>> = {
  loopback: ['127.0.0.1', '127.255.0.3', '::1', '::ffff:127.0.0.1', '0:0:0:0:0:ffff:7f00:1', '64:ff9b::7f00:1', '2002:7f00:1::'],
  'link-local': ['169.254.169.254', 'fe80::1', 'fe80::1%eth0', '::ffff:169.254.169.254', '64:ff9b::a9fe:a9fe'],
  private: [
    '10.0.0.1',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.1.1',
    '100.64.0.1',
    'fd00::1',
    'fc00::1',
    '::ffff:10.1.2.3',
    '2002:a01:203::1',
  ],
  reserved: [
    '0.0.0.0',
    '0.1.2.3',
    '224.0.0.1',
    '255.255.255.255',
    '192.0.2.1',
    '198.18.0.1',
    '::',
    '::7f00:1',
    'ff02::1',
    '2001:db8::1',
    'no address',
    '',
  ],
  public: ['8.8.8.8', '172.15.0.1', '172.32.0.1', '11.0.0.1', '2606:4700::1111', '::ffff:8.8.8.8', '64:ff9b::808:808', '[2606:4700::1111]'],
};

test('each address has its kind, also one that is carried in another', () => {
  for (const [kind, addresses] of Object.entries(cases)) for (const address of addresses) assert.equal(addressKind(address), kind, address);
});

test('a host that is an address is told from a name', () => {
  for (const host of ['127.0.0.1', '[::1]', '::1']) assert.ok(isAddress(host), host);
  for (const host of ['localhost', '1.2.3', 'a.b']) assert.ok(!isAddress(host), host);
});
