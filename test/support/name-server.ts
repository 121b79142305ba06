/** A name server on loopback that answers, lies, or says nothing. */
import { createSocket } from 'node:dgram'
import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'
import { onTestFinished } from 'vitest'

/** Types of records. */
export const A = 1
export const AAAA = 28
const CNAME = 5

export type NameAnswer =
  | { address: string; ttlSeconds?: number }
  | { addresses: string[] }
  | { cname: string }
  | 'silent'
  | 'garbage'
  | 'none'

/** @param answer is called for each query. An address of the other family is left out of the response. */
export async function startNameServer(answer: (name: string, type: number) => NameAnswer) {
  const socket = createSocket('udp4')
  /** Names that were asked for an A record. */
  const asked: string[] = []
  socket.on('message', (query, { port, address }) => {
    const { name, end, type } = readQuestion(query)
    if (type === A) asked.push(name)
    const said = answer(name, type)
    if (said === 'silent') return
    const reply =
      said === 'garbage' ? Buffer.alloc(40, 0xff) : write(query.subarray(0, end), recordsOf(said, type))
    if (said === 'garbage') query.copy(reply, 0, 0, 2)
    socket.send(reply, port, address)
  })
  await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve))
  onTestFinished(() => void socket.close())
  return { server: `127.0.0.1:${socket.address().port}`, asked }
}

function readQuestion(query: Buffer): { name: string; end: number; type: number } {
  const labels: string[] = []
  let at = 12
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length))
    at += length + 1
  }
  return { name: labels.join('.').toLowerCase(), end: at + 5, type: query.readUInt16BE(at + 1) }
}

const encode = (name: string): Buffer =>
  Buffer.concat([
    ...name
      .split('.')
      .map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label, 'latin1')])),
    Buffer.from([0]),
  ])

type NamedRecord = { address: string; ttlSeconds?: number } | { cname: string }

function recordsOf(answer: Exclude<NameAnswer, 'silent' | 'garbage'>, type: number): NamedRecord[] {
  if (answer === 'none') return []
  const records: NamedRecord[] =
    'addresses' in answer ? answer.addresses.map((address) => ({ address })) : [answer]
  const ofType = (record: NamedRecord) =>
    'cname' in record ? type === A : isIP(record.address) === (type === A ? 4 : 6)
  return records.filter(ofType)
}

function write(question: Buffer, records: NamedRecord[]): Buffer {
  const header = Buffer.from(question)
  header.writeUInt16BE(0x8180, 2)
  header.writeUInt16BE(records.length, 6)
  header.writeUInt16BE(0, 8)
  header.writeUInt16BE(0, 10)
  return Buffer.concat([header, ...records.map(writeRecord)])
}

function writeRecord(answer: NamedRecord): Buffer {
  const isName = 'cname' in answer
  const data = isName ? encode(answer.cname) : Buffer.from(ipaddr.parse(answer.address).toByteArray())
  const type = isName ? CNAME : data.length === 4 ? A : AAAA
  const record = Buffer.alloc(12)
  record.writeUInt16BE(0xc00c, 0)
  record.writeUInt16BE(type, 2)
  record.writeUInt16BE(1, 4)
  record.writeUInt32BE(isName ? 60 : (answer.ttlSeconds ?? 60), 6)
  record.writeUInt16BE(data.length, 10)
  return Buffer.concat([record, data])
}
