/** A name server on loopback that answers, lies, or says nothing. */
import { createSocket } from 'node:dgram'
import { onTestFinished } from 'vitest'

export type NameAnswer =
  | { address: string; ttlSeconds?: number }
  | { addresses: string[] }
  | { cname: string }
  | 'silent'
  | 'garbage'
  | 'none'

/** @param answer is called for each query of an A record. Others are answered with no record. */
export async function startNameServer(answer: (name: string) => NameAnswer) {
  const socket = createSocket('udp4')
  /** Names that were asked for an A record. */
  const asked: string[] = []
  socket.on('message', (query, { port, address }) => {
    const { name, end, type } = readQuestion(query)
    if (type === 1) asked.push(name)
    const said = answer(name)
    if (said === 'silent') return
    const reply =
      said === 'garbage' ? Buffer.alloc(40, 0xff) : write(query.subarray(0, end), type === 1 ? said : 'none')
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

function write(question: Buffer, answer: Exclude<NameAnswer, 'silent' | 'garbage'>): Buffer {
  const records = answer === 'none' ? [] : 'addresses' in answer ? answer.addresses : [answer]
  const header = Buffer.from(question)
  header.writeUInt16BE(0x8180, 2)
  header.writeUInt16BE(records.length, 6)
  header.writeUInt16BE(0, 8)
  header.writeUInt16BE(0, 10)
  return Buffer.concat([header, ...records.map(writeRecord)])
}

function writeRecord(given: string | { address: string; ttlSeconds?: number } | { cname: string }): Buffer {
  const answer = typeof given === 'string' ? { address: given } : given
  const isName = 'cname' in answer
  const data = isName ? encode(answer.cname) : Buffer.from(answer.address.split('.').map(Number))
  const record = Buffer.alloc(12)
  record.writeUInt16BE(0xc00c, 0)
  record.writeUInt16BE(isName ? 5 : 1, 2)
  record.writeUInt16BE(1, 4)
  record.writeUInt32BE(isName ? 60 : (answer.ttlSeconds ?? 60), 6)
  record.writeUInt16BE(data.length, 10)
  return Buffer.concat([record, data])
}
