/**
 * Encodes arrays in PostgreSQL's binary format. pg would write an array as text, with every element escaped. It sends a Buffer
 * unchanged.
 */

/** Milliseconds from 1970 to 2000, where PostgreSQL's clock starts. */
const POSTGRES_EPOCH_MS = 946_684_800_000

const ELEMENT_OID = { bool: 16, int8: 20, int4: 23, text: 25, timestamptz: 1184, uuid: 2950 }

export const booleanArray = (values: Array<boolean | null>): Buffer =>
  fixedArray(ELEMENT_OID.bool, 1, values, (buffer, offset, value) => buffer.writeUInt8(value ? 1 : 0, offset))

export const int4Array = (values: Array<number | null>): Buffer =>
  fixedArray(ELEMENT_OID.int4, 4, values, (buffer, offset, value) => buffer.writeInt32BE(value, offset))

export const int8Array = (values: Array<bigint | null>): Buffer =>
  fixedArray(ELEMENT_OID.int8, 8, values, (buffer, offset, value) => buffer.writeBigInt64BE(value, offset))

export const timestamptzArray = (values: Array<number | null>): Buffer =>
  fixedArray(ELEMENT_OID.timestamptz, 8, values, (buffer, offset, value) =>
    buffer.writeBigInt64BE(BigInt(value - POSTGRES_EPOCH_MS) * 1000n, offset),
  )

export const uuidArray = (values: Buffer[]): Buffer =>
  fixedArray(ELEMENT_OID.uuid, 16, values, (buffer, offset, value) => value.copy(buffer, offset))

/** Texts must be storable (see storable.ts). */
export function textArray(values: Array<string | null>): Buffer {
  const lengths = values.map((value) => (value === null ? -1 : Buffer.byteLength(value)))
  const size = lengths.reduce((sum, length) => sum + 4 + Math.max(0, length), HEADER_BYTES)
  const buffer = header(ELEMENT_OID.text, values.length, size)
  let offset = HEADER_BYTES
  for (const [index, value] of values.entries()) {
    offset = buffer.writeInt32BE(lengths[index] as number, offset)
    if (value !== null) offset += buffer.write(value, offset)
  }
  return buffer
}

/** Number of dimensions, flag for nulls, element type, length and lower bound of the one dimension. */
const HEADER_BYTES = 20

function header(elementOid: number, length: number, size: number): Buffer {
  const buffer = Buffer.allocUnsafe(size)
  buffer.writeInt32BE(1, 0)
  buffer.writeInt32BE(1, 4)
  buffer.writeInt32BE(elementOid, 8)
  buffer.writeInt32BE(length, 12)
  buffer.writeInt32BE(1, 16)
  return buffer
}

function fixedArray<T>(
  elementOid: number,
  elementBytes: number,
  values: Array<T | null>,
  write: (buffer: Buffer, offset: number, value: T) => void,
): Buffer {
  const present = values.reduce((count, value) => count + (value === null ? 0 : 1), 0)
  const buffer = header(elementOid, values.length, HEADER_BYTES + 4 * values.length + elementBytes * present)
  let offset = HEADER_BYTES
  for (const value of values) {
    if (value === null) {
      offset = buffer.writeInt32BE(-1, offset)
      continue
    }
    offset = buffer.writeInt32BE(elementBytes, offset)
    write(buffer, offset, value)
    offset += elementBytes
  }
  return buffer
}

// Columns that have no value in most batches. Such a column is sent as null, so the SQL function reads nothing.

export function sparse<Value>(
  values: Array<Value | null>,
  toArray: (values: Array<Value | null>) => Buffer,
): Buffer | null {
  return values.every((value) => value === null) ? null : toArray(values)
}
