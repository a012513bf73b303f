// A page to draw on. Vite bundles it, and Berth serves the result.
import "./style.css";

const canvas = document.querySelector("canvas");
const pen = canvas.getContext("2d");

function fit() {
  canvas.width = innerWidth;
  canvas.height = innerHeight;
  pen.lineWidth = 3;
  pen.lineCap = "round";
}

addEventListener("resize", fit);
canvas.addEventListener("pointerdown", (e) => {
  pen.beginPath();
  pen.moveTo(e.clientX, e.clientY);
});
canvas.addEventListener("pointermove", (e) => {
  if (!e.buttons) return;
  pen.lineTo(e.clientX, e.clientY);
  pen.stroke();
});
fit();
