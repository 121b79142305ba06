/** Small charts in a table row, each with a text alternative. Each is one path, because a page has hundreds of them. */
const WIDTH = 96
const HEIGHT = 24

export function SparkBars({ values, label }: { values: number[]; label: string }) {
  const peak = Math.max(1, ...values)
  const step = WIDTH / Math.max(1, values.length)
  const bars = values
    .map((value, i) => {
      const height = value === 0 ? 1 : Math.max(2, (value / peak) * HEIGHT)
      return `M${(i * step).toFixed(1)} ${HEIGHT}v${-height.toFixed(1)}h${(step - 1).toFixed(1)}V${HEIGHT}z`
    })
    .join('')
  return (
    <svg class="spark bars" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
      <path d={bars} />
    </svg>
  )
}

/** Days without a count are gaps. */
export function SparkLine({ values, label }: { values: Array<number | null>; label: string }) {
  const known = values.filter((value) => value !== null)
  const low = Math.min(...known)
  const range = Math.max(1, Math.max(...known) - low)
  const step = WIDTH / Math.max(1, values.length - 1)
  let line = ''
  let isDrawing = false
  for (const [i, value] of values.entries()) {
    if (value === null) isDrawing = false
    else {
      const y = HEIGHT - 2 - ((value - low) / range) * (HEIGHT - 4)
      line += `${isDrawing ? 'L' : 'M'}${(i * step).toFixed(1)} ${y.toFixed(1)}`
      isDrawing = true
    }
  }
  return (
    <svg class="spark line" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
      <path d={line} />
    </svg>
  )
}

/** Placeholder of a chart that is not loaded yet, so that the row does not move. */
export const SparkSpace = () => <span class="spark" aria-hidden="true" />
