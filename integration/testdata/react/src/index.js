import { createRoot } from "react-dom/client";

const unused = "a warning, which must not fail the build";

createRoot(document.getElementById("root")).render(<h1>Hello from React</h1>);
