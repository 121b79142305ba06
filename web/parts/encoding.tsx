/** The encoding of a file that somebody chooses. Spreadsheets on Japanese and Thai Windows write other ones than UTF-8. */
import { ENCODINGS, type Encoding } from '../../src/audience/import/encodings.ts'
import { ApiError } from '../api.ts'
import { useLocalized } from '../texts.ts'
import { SelectField } from './form.tsx'

const NAMES: Record<Encoding, string> = {
  'utf-8': 'UTF-8',
  cp932: 'Shift_JIS (CP932)',
  'tis-620': 'TIS-620 (Windows-874)',
}

export function EncodingField({
  value,
  onChange,
}: {
  value: Encoding
  onChange: (encoding: Encoding) => void
}) {
  const { t } = useLocalized()
  const options = (Object.keys(ENCODINGS) as Encoding[]).map(
    (encoding) => [encoding, NAMES[encoding]] as const,
  )
  return (
    <SelectField
      name="encoding"
      label={t.file.encoding}
      value={value}
      options={options}
      onChange={onChange}
    />
  )
}

/** Throws an ApiError that says what to do. */
export async function readText(
  file: Blob,
  encoding: Encoding,
  texts: { unreadable: string; wrongEncoding: string },
): Promise<string> {
  const bytes = await file.arrayBuffer().catch(() => {
    throw new ApiError(texts.unreadable, { status: 400 })
  })
  try {
    return new TextDecoder(ENCODINGS[encoding], { fatal: true }).decode(bytes)
  } catch {
    throw new ApiError(texts.wrongEncoding, { status: 400 })
  }
}
